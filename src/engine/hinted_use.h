// The effect of a hint (far/hint.h) on one page: it will be used, and may leave early afterwards.
#pragma once

#include <cstdint>

#include "engine/block.h"
#include "engine/residency.h"

namespace far::engine {

// The state in which a use would find a page. `ready`: it can be used at once. `missing`: a miss would have something
// to do. `untouched`: so it would if the program has allocated the page, which the engine does not know. `lost`:
// nothing helps.
enum class prospect : std::uint8_t { ready, missing, untouched, lost };

class hinted_use {
 public:
  // Requires: both outlive this.
  hinted_use(residency& pages, const block_table& blocks) : pages_(pages), blocks_(blocks) {}

  // Marks a page that is ready as used, unless a scan passes by (which does not mean that it will be used again).
  [[nodiscard]] prospect expect(page_id page, bool write, bool by_scan);

  // For the policy, from now on; see policy.h.
  void set_eviction_priority(page_id page, unsigned priority);

 private:
  residency& pages_;
  const block_table& blocks_;
};

}  // namespace far::engine
