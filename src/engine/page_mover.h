// Moving pages within the far heap, as mremap does. Remote pages move by name only: nothing is fetched.
#pragma once

#include "engine/core.h"
#include "engine/transfer_queues.h"

namespace far::engine {

class page_mover {
 public:
  page_mover(core_for_ranges& shared, transfer_queues& transfers) : shared_(shared), transfers_(transfers) {}

  // Before a move: guards the blocks of its source. Fails where the kernel refuses; nothing but the blocks has changed.
  // Requires: allocated.
  [[nodiscard]] result<void> guard_source(page_range from);
  // Makes the pages of `from` those of the equally long `to`; `from` is Untouched afterwards. Requires: both allocated
  // and in guarded blocks, `to` Untouched.
  void move(page_range from, page_id to);

 private:
  [[nodiscard]] bool move_page(page_id from, page_id to);
  void move_remote(page_id from, page_id to, page_word before);
  void move_resident(page_id from, page_id to, page_word before);
  void claim_target(page_id page);

  core_for_ranges& shared_;
  transfer_queues& transfers_;
};

}  // namespace far::engine
