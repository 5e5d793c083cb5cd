#include "base/page_hash.h"

#include "base/units.h"
#include "base/xxh3.h"

namespace far {

page_hash hash_page(const std::byte* page) noexcept {
  const wide_hash hash = fastest_xxh3().hash_128(page, page_bytes);
  return {hash.low, hash.high};
}

}  // namespace far
