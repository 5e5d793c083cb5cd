// Shared by the parts of the engine: the narrow interfaces to kernel, backend and clock, and the state of the far heap.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "base/forecast.h"
#include "base/spin_lock.h"
#include "engine/block.h"
#include "engine/budget.h"
#include "engine/counters.h"
#include "engine/eviction_clock.h"
#include "engine/eviction_filter.h"
#include "engine/eviction_pace.h"
#include "engine/page_affinity.h"
#include "engine/page_checks.h"
#include "engine/policy.h"
#include "engine/refused_questions.h"
#include "engine/residency.h"
#include "engine/slot_reads.h"
#include "platform/address_space.h"
#include "platform/clock.h"

namespace far::engine {

// Why eviction has stalled. While it has, the budget may be exceeded: losing bytes would be worse.
enum class stall_reason : std::uint8_t { none, no_space, no_tier, write_failed, nothing_evictable };

// The kind of thread that takes a step. A thread of the program may next wait inside the kernel for any time. If the
// far tier reports a transfer only while its submitter runs (backend.h), such a thread leaves writes to a thread of the
// runtime, and does not submit transfers for which others wait.
enum class caller : std::uint8_t { of_program, of_runtime };

struct core_sizes {
  std::uint64_t heap_pages = 0;
  std::uint64_t first_number = 0;  // see residency
  std::uint64_t budget_pages = 0;
  bool tracks_writes = false;   // the kernel can report first writes to clean pages
  bool reads_parts = false;     // parts of Remote pages are read, by object readers
  std::uint64_t hash_seed = 0;  // see engine::options
  eviction_pace pace = {};
};

// The whole state. No part of the engine uses this type: the three types below open parts of it, each more than the one
// before, so the type that a part gets says what it may touch (docs/decisions/0047-narrow-core.md).
class core_state {
 public:
  core_state(const core_state&) = delete;
  core_state& operator=(const core_state&) = delete;

 protected:
  // Requires: the interfaces outlive the core.
  core_state(platform::address_space& kernel, backend::backend& far_tier, const platform::clock& clock,
             const core_sizes& chosen);
  ~core_state();

  // Before the first eviction: staging for so many pages, room for as many copies, and a batch of zeros.
  void map_buffers(std::size_t staging_pages);

  // Before any call below: which pages leave first.
  void set_order(std::unique_ptr<policy> chosen);

  // Puts a resident page into the policy's care, unless it is there.
  void admit(page_id page, temperature how);
  [[nodiscard]] std::size_t select_victims(std::span<page_id> victims);
  // How many pages are in the policy's care.
  [[nodiscard]] std::size_t ordered_pages();
  // The policy's (policy.h).
  [[nodiscard]] unsigned remembered_epochs() const { return remembered_epochs_; }
  [[nodiscard]] unsigned recalled_epochs() const { return recalled_epochs_; }

  // Charges one frame for a miss; may exceed the budget while eviction is stalled.
  [[nodiscard]] bool charge_for_miss();

  // Releases a slot: to the backend, or to the reads of it that are under way. Its page's word has changed before: a
  // fork that comes in between must not find the slot there.
  void free_slot(backend::slot_id slot);

  // Around fork.
  void lock_order() FAR_ACQUIRE(order_lock_) { order_lock_.lock(); }
  void unlock_order() FAR_RELEASE(order_lock_) { order_lock_.unlock(); }
  void open_order_in_child() { order_lock_.open_in_child(); }
  // In the child: resets the counters, and charges this many frames.
  void begin_again(std::uint64_t charged_pages);

  // Requires: the caller owns the page, which is Evicting and not lifted. When the kernel has no bytes for it, the
  // program dropped them with a system call that the runtime did not see, and will read zeros there. Then the page
  // becomes Untouched and loses its frame and slot, and this returns true.
  [[nodiscard]] bool forget_if_dropped(page_id page);

  void stall(stall_reason why);
  void clear_stall();
  // Something could be evicted, so a stall is over.
  void note_evictable() {
    if (stall_.load(std::memory_order_relaxed) == stall_reason::nothing_evictable) clear_stall();
  }
  [[nodiscard]] bool stalled() const { return stall_.load(std::memory_order_relaxed) != stall_reason::none; }
  // While the far tier takes no bytes, writing is tried again only once in a while.
  [[nodiscard]] bool may_write() const {
    const stall_reason why = stall_.load(std::memory_order_relaxed);
    return why == stall_reason::none || why == stall_reason::nothing_evictable || time.now_ns() >= retry_at_ns_.load();
  }

  // The budget is exceeded for a known reason: eviction is stalled, or the budget has shrunk. Lasts until the evictor
  // has caught up.
  void allow_excess() { excess_allowed_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool excess_allowed() const {
    if (!stalled() && local.free_pages() >= 0) excess_allowed_.store(false, std::memory_order_relaxed);
    return excess_allowed_.load(std::memory_order_relaxed);
  }

  void note_far_peak();

  // For hardware guards that report a miss: eviction_filter::on_unguarded_miss, unless the page is Resident and only
  // not writable.
  void note_unguarded_miss(page_id page) const {
    if (filter != nullptr && pages.load(page).where() != state::resident) filter->on_unguarded_miss(page);
  }

  // The kernel has no room for another mapping, so a block can no longer differ from its neighbours. Warns once.
  void note_refused_guard(const error& why);

  // Whether blocks can be guarded: not in the child of a fork that has no userfaultfd. That is known before it has a
  // second thread, and said elsewhere.
  [[nodiscard]] bool serves_misses() const { return serves_misses_; }
  void serve_no_misses() { serves_misses_ = false; }

  // The name of the far tier in messages. It is copied at the start, because asking for it allocates from the program's
  // allocator, on threads that may hold locks which a fork holds, too.
  [[nodiscard]] const char* far_name() const { return far_name_.data(); }

  platform::address_space& space;
  backend::backend& far;
  const platform::clock& time;
  residency pages;
  page_checks checks;
  page_affinity affinities;
  block_table blocks;
  slot_reads reads;
  refused_questions refused{time};
  budget local;
  counters count;
  const eviction_clock evictions{local, count};
  const bool writes_tracked;
  const std::size_t pages_a_batch;  // how many are evicted at a time

  // How long a failed read is tried again, with growing pauses, before its page is Lost. A device that hangs, a path
  // that fails over or a server that restarts takes seconds. A far tier may know a better value
  // (backend::read_patience_ns).
  std::uint64_t read_patience_ns = 30'000'000'000;

  // Asked before victims leave; null where there is none. Set before the first eviction.
  eviction_filter* filter = nullptr;

  // A page that expects writes is mapped writable when it comes in for a read, which saves the fault of the write. But
  // if no write comes, the page must be lifted to find that out, which costs about as much, and much more beside
  // running threads (docs/decisions/0001-moving-pages.md). A case of the forecast is such a page that has left or has
  // been written to.
  forecast writes;

  // Whether pages that came in for a read are written to later. Where a page will mostly leave `unused`
  // (eviction_filter.h), a look at it in place finds that out, which costs much less than the first write to a page
  // that is protected: 0.3 us beside 0.7, or 10 us beside a running thread (docs/decisions/0115-first-writes.md).
  forecast later_writes;
  // Asked for a page that comes in for a read: whether it is to be writable for such a write.
  [[nodiscard]] bool may_be_written_later(page_id page) const {
    return filter != nullptr && later_writes.comes_true_once_in(cases_a_later_write) && filter->leaves_unused(page);
  }

  // Staging for all evictors (map_buffers()), so that a rescuer finds the bytes of a lifted page from its word alone.
  // Its first half is empty between batches, for frames that are moved there; the second half keeps its frames, for
  // copies.
  [[nodiscard]] std::byte* staged(std::size_t staging_page) const {
    const std::size_t copy = staging_page - staging_pages_;
    return staging_page < staging_pages_ ? staging_ + staging_page * page_bytes : copies_ + copy * page_bytes;
  }
  [[nodiscard]] std::size_t half_of_staging() const { return staging_pages_; }
  std::atomic<std::uint8_t>* rescued = nullptr;  // per staging page: a rescuer is done with it

  // Batches of all evictors whose pages are being written: frames that will be free.
  std::atomic<std::size_t> batches_under_way{0};

  // A batch of zeros to fill untouched pages from.
  std::byte* zeros = nullptr;

 private:
  static constexpr std::uint32_t cases_a_later_write = 4;

  std::size_t staging_pages_ = 0;  // of each half
  std::byte* staging_ = nullptr;
  std::byte* copies_ = nullptr;
  std::array<char, 256> far_name_{};
  spin_lock order_lock_;
  std::unique_ptr<policy> order_ FAR_GUARDED_BY(order_lock_) FAR_POINTEE_GUARDED_BY(order_lock_);
  unsigned remembered_epochs_ = 0;
  unsigned recalled_epochs_ = 0;
  std::atomic<stall_reason> stall_{stall_reason::none};
  std::atomic<bool> stall_announced_{false};
  std::atomic<bool> refused_guard_announced_{false};
  bool serves_misses_ = true;
  std::atomic<std::uint64_t> retry_at_ns_{0};
  mutable std::atomic<bool> excess_allowed_{false};
};

// For the memory calls of the program, for pins, and for moves of pages: pages, blocks and frames. Their code does not
// reach the far tier; it can only give slots back.
class core_for_ranges : public core_state {
 public:
  using core_state::affinities;
  using core_state::blocks;
  using core_state::checks;
  using core_state::local;
  using core_state::pages;
  using core_state::space;
  using core_state::zeros;

  using core_state::admit;
  using core_state::allow_excess;
  using core_state::forget_if_dropped;
  using core_state::free_slot;
  using core_state::note_refused_guard;
  using core_state::serves_misses;

 protected:
  using core_state::core_state;
};

// For misses, fetches and reads of objects. It adds the far tier, and staging, from which pages on their way out are
// brought back. Their code can neither select victims nor say that eviction has stalled.
class core_for_misses : public core_for_ranges {
 public:
  using core_state::far;
  using core_state::far_name;
  using core_state::read_patience_ns;
  using core_state::reads;
  using core_state::refused;
  using core_state::time;

  using core_state::count;
  using core_state::evictions;
  using core_state::later_writes;
  using core_state::may_be_written_later;
  using core_state::recalled_epochs;
  using core_state::remembered_epochs;
  using core_state::writes;
  using core_state::writes_tracked;

  using core_state::rescued;
  using core_state::staged;

  using core_state::charge_for_miss;
  using core_state::note_unguarded_miss;
  using core_state::stalled;

 protected:
  using core_for_ranges::core_for_ranges;
};

// For eviction, and for the code that sets up, forks and validates the engine: all of it.
class core : public core_for_misses {
 public:
  core(platform::address_space& kernel, backend::backend& far_tier, const platform::clock& clock,
       const core_sizes& chosen)
      : core_for_misses(kernel, far_tier, clock, chosen) {}

  using core_state::batches_under_way;
  using core_state::filter;
  using core_state::map_buffers;
  using core_state::pages_a_batch;
  using core_state::set_order;

  using core_state::ordered_pages;
  using core_state::select_victims;

  using core_state::half_of_staging;

  using core_state::clear_stall;
  using core_state::excess_allowed;
  using core_state::may_write;
  using core_state::note_evictable;
  using core_state::note_far_peak;
  using core_state::stall;

  using core_state::begin_again;
  using core_state::lock_order;
  using core_state::open_order_in_child;
  using core_state::serve_no_misses;
  using core_state::unlock_order;
};

// After a page could not be mapped. Waits a little when the kernel is out of frames: the evictor, or the out-of-memory
// killer, makes room. Stops the process for any other reason, because none is possible while the engine's picture of
// the far heap is right.
void wait_for_kernel_memory(int error_code, backoff* waiting);

}  // namespace far::engine
