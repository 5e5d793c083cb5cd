#include "base/page_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/units.h"

namespace far {

page_hash hash_page(const std::byte* page) noexcept {
  const XXH128_hash_t hash = XXH3_128bits(page, page_bytes);
  return {hash.low64, hash.high64};
}

}  // namespace far
