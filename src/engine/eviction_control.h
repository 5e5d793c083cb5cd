// Decides when and where pages are evicted: at a miss, in the background between the watermarks, or on request for a
// range. Evictors (evictor.h) do the work.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/core.h"
#include "engine/eviction_place.h"
#include "engine/host.h"
#include "engine/transfer_queues.h"

namespace far::engine {

class eviction_control {
 public:
  // `where`, `measures_where`: as in engine::options.
  eviction_control(core& shared, transfer_queues& transfers, eviction_place where, bool measures_where)
      : shared_(shared), transfers_(transfers), places_(where, measures_where) {}

  [[nodiscard]] std::int64_t free_frames() const { return shared_.local.free_pages(); }
  [[nodiscard]] bool has_frame_for_miss() const { return free_frames() > 0 || shared_.stalled(); }
  // Whether pages may be read ahead.
  [[nodiscard]] bool has_frames_ahead() const {
    return free_frames() > static_cast<std::int64_t>(shared_.local.low_watermark_pages() / 2);
  }

  // Evicts one batch, or finishes some, if a frame is wanted. For missing threads that find no free frame. Returns
  // whether anything was done.
  bool reclaim(caller who = caller::of_program) { return reclaim_if(free_frames() <= 0, eviction_place::at_miss, who); }

  // Evict ahead of need, between the watermarks. A thread that resolves a miss calls the first beforehand, while the
  // missing thread stands still; the evictor's thread calls the second. The cheaper of the two places evicts a batch;
  // the first also does when the evictor's thread does not keep up. Both return whether anything was done.
  bool reclaim_at_miss(caller who = caller::of_program);
  bool reclaim_in_background();
  // Whether the evictor's thread has something to evict, or the far tier wants to be tended. Also true while the budget
  // is exceeded because it has shrunk, since there may be no miss to evict.
  [[nodiscard]] bool wants_background() const {
    return (wants_reclaim() && (places_.next() == eviction_place::background || free_frames() < 0)) ||
           shared_.far.wants_tending();
  }

  // Evicts the pages of a range that can leave, regardless of the budget, in batches of this size. Waits for slots that
  // the far tier is to have soon, for up to a second. Requires: 0 < pages_a_batch <= batch_pages. `around`: the host
  // whose background is woken for writes left to it; null: it polls.
  void evict(page_range range, std::size_t pages_a_batch = batch_pages, host* around = nullptr);

  void resize(std::uint64_t budget_pages);
  // So much of the budget is used for something else than pages.
  void set_aside(std::uint64_t pages);
  [[nodiscard]] std::uint64_t budget_pages() const { return shared_.local.whole_pages(); }

  // Around fork, which waits for locks: evict() yields them.
  void note_fork(bool waits) { fork_waits_.store(waits, std::memory_order_release); }
  // In the child, which has no thread that evicts.
  void restart_in_child();

 private:
  [[nodiscard]] bool wants_reclaim() const { return shared_.local.below_low(); }
  bool reclaim_if(bool wanted, eviction_place place, caller who);
  [[nodiscard]] bool evict_batch(std::span<page_id> victims, host* around, bool waits_for_slots);
  template <typename Done>
  void step_until(host* around, Done done);

  core& shared_;
  transfer_queues& transfers_;
  eviction_places places_;
  bool background_reclaiming_ = false;  // between the watermarks; the evictor's thread alone
  std::atomic<bool> fork_waits_{false};
};

}  // namespace far::engine
