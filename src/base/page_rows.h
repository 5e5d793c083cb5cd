// Questions about rows of columns, whose groups other pages tell (page_reduction.h, reduction_kind::of_rows).
#pragma once

#include <cstddef>

#include "base/page_reduction.h"

namespace far {

// Parts of is_valid() and found_bytes().
[[nodiscard]] bool is_valid_of_rows(const reduction& how);
[[nodiscard]] std::size_t found_bytes_of_rows(const reduction& how);

}  // namespace far
