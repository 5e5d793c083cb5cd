// The engine around fork(2): a consistent copy for the child, and the repairs in the child.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "engine/core.h"
#include "engine/eviction_control.h"
#include "engine/tier_tending.h"
#include "engine/transfer_queues.h"

namespace far::engine {

class fork_steps {
 public:
  fork_steps(core& shared, transfer_queues& transfers, eviction_control& eviction, tier_tending& tending)
      : shared_(shared), transfers_(transfers), eviction_(eviction), tending_(tending) {}

  // Before the fork, and after it in the parent. In between no miss and no eviction is half done.
  void lock();
  void unlock();

  // In the child, first of all: closes the parent's channels, so that there are descriptors for the child's.
  void close_transfers_in_child() {
    transfers_.close_in_child();
    tending_.close_in_child();
  }
  // In the child, before resume_in_child(): whether there may be misses in any block.
  [[nodiscard]] bool has_guarded_blocks() const;
  // In the child: takes over the copied state, and tells the far tier which slots it refers to. Requires: one thread;
  // the address space reports misses again if `serves_misses`, or else no block is guarded: then none will be, so that
  // nothing leaves. `pinned`: the ranges that stay pinned, once for each pin.
  [[nodiscard]] result<void> resume_in_child(std::span<const page_range> pinned = {}, bool serves_misses = true);

 private:
  void keep_pins(std::span<const page_range> pinned);
  [[nodiscard]] result<void> guard_again();
  void reopen(page_range range);
  [[nodiscard]] static bool is_unsure(page_word word);
  [[nodiscard]] std::uint64_t resume_block(block_id id);
  void resume_page(page_id page, bool filled);

  core& shared_;
  transfer_queues& transfers_;
  eviction_control& eviction_;
  tier_tending& tending_;
};

}  // namespace far::engine
