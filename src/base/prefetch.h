// Hints to the processor about memory that is read soon.
#pragma once

#include <cstddef>

#include "base/units.h"

namespace far {

// Begins to load a page into the caches. The processor's own prefetching ends at each page. nullptr: nothing.
inline void prefetch_page(const std::byte* page) {
  if (page == nullptr) return;
  constexpr std::size_t line_bytes = 64;
  for (std::size_t at = 0; at < page_bytes; at += line_bytes) __builtin_prefetch(page + at);
}

}  // namespace far
