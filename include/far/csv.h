// Comma-separated values (RFC 4180) as a far::dataframe (docs/dataframe.md).
#pragma once

#include <istream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "far/column.h"
#include "far/dataframe.h"
#include "far/detail/api.h"
#include "far/tag.h"

namespace far {

// Says what is wrong, in which line and column.
class FAR_API csv_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct csv_options {
  char separator = ',';
  std::string name = "the input";  // in messages
};

// Reads the columns that `wanted` names, of these types, in that order; the first record has the names, and other
// columns are skipped; of several of one name, the first is read. An empty field is null, but in quotes an empty text
// in a column of texts. Numbers, true, false (also as True and TRUE), 1, 0, and times like 2016-03-14 17:24:55 or
// 2016-03-14 fill their fields as a whole. Texts keep their bytes, of whatever encoding; only UTF-8 can be exported
// (far/arrow.h). Throws csv_error when a column is missing, a record has more or fewer fields
// than the first, or a field is no value of its column's type.
[[nodiscard]] FAR_API dataframe read_csv(const tag& in, std::istream& from,
                                         const std::vector<std::pair<std::string, column_type>>& wanted,
                                         const csv_options& how = {});

}  // namespace far

#if defined(FARHEAP_CHECKED)
#include "far/detail/csv_code.h"
#endif
