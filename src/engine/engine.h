// The engine: residency, budget, fetch, evict. It owns no thread and never waits: whoever calls it (pager, simulation)
// decides who polls and who sleeps, so the same code runs on a real kernel and on a simulated one.
//
// Every call may be made from any thread, at any time, unless it says otherwise.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "engine/core.h"
#include "engine/eviction_place.h"
#include "engine/evictor.h"
#include "engine/fetcher.h"
#include "engine/host.h"
#include "engine/object_reader.h"
#include "engine/ranges.h"
#include "engine/read_ahead.h"
#include "engine/statistics.h"
#include "platform/fork_order.h"

namespace far::engine {

struct options {
  std::uint64_t heap_pages = 0;
  std::uint64_t budget_pages = 0;
  std::string policy = "second-chance";
  bool reads_parts = false;   // there will be object readers
  bool tracks_writes = true;  // the kernel can write-protect pages and report the first write
  // Where to evict: as measured, from this place on; or always there.
  eviction_place where = eviction_place::background;
  bool measures_where = true;
  std::uint64_t read_patience_ns = 30'000'000'000;  // see core::read_patience_ns
  eviction_filter* filter = nullptr;                // asked before pages leave; outlives the engine
};

class engine {
 public:
  // How much address space the tables of so many pages take. What of it is touched is memory.
  [[nodiscard]] static std::uint64_t table_bytes(std::uint64_t heap_pages, bool reads_parts) {
    return heap_pages * (residency::bytes_a_page + page_checks::bytes_a_page(reads_parts));
  }

  // Requires: the interfaces outlive the engine.
  [[nodiscard]] static result<std::unique_ptr<engine>> create(platform::address_space& space, backend::backend& far,
                                                              const platform::clock& time, const options& chosen);
  ~engine();
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  // A fetcher for a thread that resolves misses. The engine keeps it, so that others can finish what it started.
  [[nodiscard]] result<fetcher*> add_fetcher();

  // A reader for those who take objects out of Remote pages. The engine keeps it, and polls it in help().
  // Requires: options::reads_parts.
  [[nodiscard]] result<object_reader*> add_object_reader();

  // `listener` is told when pages settle (residency.h). Before the first miss; it outlives the engine's last call.
  void tell(settling_listener& listener) { shared_.pages.tell(listener); }

  // An access to `page` was reported. Does what can be done now; see `outcome` for what is left to the caller.
  // Requires: the lock of `by` is held. `streams`: what is known of the accessing thread. `may_fill`: the program has
  // allocated the page. Without it an Untouched page is left alone, and the outcome is `resolved`: so for hints,
  // because the memory that they are about may be released meanwhile.
  [[nodiscard]] outcome miss(fetcher& by, read_ahead_state& streams, page_id page, bool write, bool may_fill = true);

  // Starts to fetch what of the range is Remote, as far as frames are free ahead of need; nobody waits for it. At most
  // batch_pages of it are looked at. Returns how many pages come in. Requires: the lock of `by` is held.
  // `write`: writable, because a hint says that all of it will be written. `eviction_priority`: as a hint says.
  std::size_t prefetch(fetcher& by, page_range range, bool write, std::optional<unsigned> eviction_priority) {
    return by.prefetch(range, write, eviction_priority);
  }
  // Whether prefetch() would find frames.
  [[nodiscard]] bool has_frames_ahead() const {
    return shared_.local.free_pages() > static_cast<std::int64_t>(shared_.local.low_watermark_pages() / 2);
  }

  // For hardware guards, about a miss that they were told of: eviction_filter::on_unguarded_miss, unless the page is
  // Resident, and only not writable.
  void note_unguarded_miss(page_id page) const {
    if (shared_.filter != nullptr && shared_.pages.load(page).where() != state::resident) {
      shared_.filter->on_unguarded_miss(page);
    }
  }

  // Polls whatever is on its way, in any fetcher, reader or evictor that nobody holds. Returns whether anything was
  // done.
  bool help(caller who = caller::of_program);

  // Evicts one batch, or finishes some, if a frame is wanted. For missing threads that find no free frame. Returns
  // whether anything was done.
  bool reclaim(caller who = caller::of_program) {
    return reclaim_if(shared_.local.free_pages() <= 0, eviction_place::at_miss, who);
  }

  // Evicts ahead of need, between the watermarks. A thread that resolves a miss calls the first before it does, while
  // the missing thread stands still; the evictor's thread calls the second. Whichever place is the cheaper one evicts a
  // batch, and the first also where the evictor's thread does not keep up. Both return whether anything was done.
  bool reclaim_at_miss(caller who = caller::of_program);
  bool reclaim_in_background();
  // Whether the evictor's thread has something to evict: also while the budget is exceeded, because it has shrunk, and
  // no miss may come to do it.
  [[nodiscard]] bool wants_background() const {
    return (wants_reclaim() && (places_.next() == eviction_place::background || shared_.local.free_pages() < 0)) ||
           wants_tending();
  }
  // Whether threads of the program have left writes to a thread of the runtime (`caller`): it calls help().
  [[nodiscard]] bool has_left_writes() const {
    return std::any_of(evictors_.begin(), evictors_.end(), [](const auto& each) { return each->has_left_writes(); });
  }

  // Whether anything waits to be submitted by a thread of the runtime's that calls help().
  [[nodiscard]] bool has_left_transfers() const;

  // Whether tend() should be called now.
  [[nodiscard]] bool wants_tending() const { return shared_.far.wants_tending(); }
  // What the far tier has to do behind the transfers; see backend::tend(). Not while the process forks.
  [[nodiscard]] std::uint64_t tend() {
    const platform::holds_up_forks waited_for;
    const std::lock_guard guard(tending_);
    return shared_.far.tend();
  }

  // A hint (far/hint.h) that a page will be used. `ready`: it can be used at once, and is marked as used, unless a
  // scan passes by (which does not mean that it will be used again). `missing`: a miss would have something to do.
  // `untouched`: so it would if the program has allocated the page, which the engine does not know. `lost`: nothing
  // helps.
  enum class prospect { ready, missing, untouched, lost };
  [[nodiscard]] prospect expect_use(page_id page, bool write, bool by_scan = false);
  // Fills an Untouched page, which the program has allocated. `busy`: it is not Untouched any more.
  [[nodiscard]] outcome fill_with_zeros(read_ahead_state& streams, page_id page, bool write);
  // For the policy, from now on; see policy.h.
  void set_eviction_priority(page_id page, unsigned priority);
  void note_hinted_miss() { shared_.count.hinted_misses.add(); }

  [[nodiscard]] std::uint64_t pages() const { return shared_.pages.pages(); }
  // Where the pages are, for those who wait for them and for software guards.
  [[nodiscard]] const residency& words() const { return shared_.pages; }
  [[nodiscard]] std::int64_t free_frames() const { return shared_.local.free_pages(); }
  [[nodiscard]] bool has_frame_for_miss() const { return shared_.local.free_pages() > 0 || shared_.stalled(); }
  // What became of an access: the page is still being fetched; it can be made now.
  [[nodiscard]] bool on_its_way(page_id page) const { return shared_.pages.load(page).where() == state::fetching; }
  [[nodiscard]] bool is_remote(page_id page) const { return shared_.pages.load(page).where() == state::remote; }
  [[nodiscard]] bool is_away(page_id page) const {
    const state where = shared_.pages.load_in_order(page).where();
    return where == state::remote || where == state::untouched || where == state::lost;
  }
  [[nodiscard]] bool takes_object_path(page_id page) const {
    const page_word word = shared_.pages.load(page);
    return word.where() == state::remote && word.object_path();
  }
  // Requires: the page is Remote.
  [[nodiscard]] bool left_just_now(page_id page) const {
    return (shared_.epoch() - shared_.pages.load(page).epoch()) % page_word::epochs <= 1;
  }
  [[nodiscard]] bool accessible(page_id page, bool write) const {
    const page_word word = shared_.pages.load(page);
    return word.where() == state::resident && (!write || word.dirty());
  }
  [[nodiscard]] bool transfers_under_way() const;
  // Those that no miss waits for. The others are finished by whoever waits, if it is a thread: fibers may all sleep.
  [[nodiscard]] bool transfers_unattended() const;

  // The program allocates, frees, or forgets the contents of a range. See ranges.h.
  [[nodiscard]] result<void> allocate(page_range range) { return allocate_range(shared_, range, false); }
  void release(page_range range);
  void discard(page_range range);

  // Makes the pages of `from` those of the equally long `to`; `from` is Untouched afterwards. Remote pages move by name
  // only. Requires: both allocated, `to` Untouched.
  [[nodiscard]] result<void> move(page_range from, page_id to);
  // Takes over memory that the kernel has filled in part: it is the program's already. Requires: whole blocks, fresh.
  [[nodiscard]] result<void> adopt(page_range range) { return adopt_range(shared_, range); }
  // Allocates so that move() may go there.
  [[nodiscard]] result<void> allocate_guarded(page_range range) { return allocate_range(shared_, range, true); }

  // Evicts what can be evicted of a range, whatever the budget says, in batches of this size. Requires: 0 <
  // pages_a_batch <= batch_pages. `around`: whose background is told of what is left to it; null: it looks by itself.
  void evict(page_range range, std::size_t pages_a_batch = batch_pages, host* around = nullptr);

  // Keeps a page resident and writable. try_pin fails when the page is not so now; a page of an open block is
  // mostly made so.
  [[nodiscard]] bool try_pin(page_id page);
  void unpin(page_id page);

  void resize(std::uint64_t budget_pages);

  // The range becomes Foreign, until it is allocated again: the program maps something else there. Requires: not
  // allocated.
  void hand_over(page_range range);

  // Releases an allocated range if no page of it has bytes. Requires: the program cannot touch it meanwhile.
  [[nodiscard]] bool release_if_empty(page_range range);

  // Lets the kernel fill the pages if their block is open; returns whether it is. Requires: within one block.
  [[nodiscard]] bool populate_open(page_range part);

  // Around fork, see pager.h.
  void lock_for_fork();
  void unlock_after_fork();
  // In the child, first of all: closes the parent's channels, so that there are descriptors for the child's.
  void close_transfers_in_child();
  // In the child: takes the copied state over, and tells the far tier which slots it refers to. Requires: one thread;
  // the address space reports misses again. `pinned`: what stays pinned, once for each range.
  [[nodiscard]] result<void> resume_in_child(std::span<const page_range> pinned = {});

  [[nodiscard]] statistics snapshot() const;
  [[nodiscard]] std::uint64_t now_ns() const { return shared_.time.now_ns(); }
  void note_wait(std::uint64_t nanoseconds) { shared_.count.wait_ns.add(nanoseconds); }
  void note_busy() { shared_.count.waits.add(); }
  void note_direct_reclaim() { shared_.count.direct_reclaims.add(); }

  // Recomputes every invariant and stops the process when one is broken. Requires: no other call at the same time.
  void validate() const;

  [[nodiscard]] const core& state_for_tests() const { return shared_; }

 private:
  static constexpr std::size_t evictors = 2;
  static constexpr std::size_t maximum_fetchers = 64;
  static constexpr std::size_t maximum_readers = 16;

  engine(platform::address_space& space, backend::backend& far, const platform::clock& time, const options& chosen);

  [[nodiscard]] bool wants_reclaim() const { return shared_.local.below_low(); }
  bool reclaim_if(bool wanted, eviction_place place, caller who);
  [[nodiscard]] outcome fetch(fetcher& by, read_ahead_state& streams, page_id page, bool write);
  [[nodiscard]] std::size_t claim_untouched(page_id page, std::size_t most);
  [[nodiscard]] outcome on_resident(page_id page, bool write);
  [[nodiscard]] outcome first_write(page_id page, page_word word);
  [[nodiscard]] bool note_lost_mapping(page_id page, page_word word);
  [[nodiscard]] window look_ahead(read_ahead_state& streams, page_id page);
  void keep_pins_in_child(std::span<const page_range> pinned);
  [[nodiscard]] result<void> guard_again_in_child();
  void reopen(page_range range);
  [[nodiscard]] static bool is_unsure_in_child(page_word word);
  [[nodiscard]] std::uint64_t resume_block(block_id which);
  void resume_page(page_id page, bool filled);
  void discard_guarded(page_range range);
  template <typename Done>
  void step_until(host* around, Done done);
  void claim_target(page_id page);
  [[nodiscard]] bool move_page(page_id from, page_id to);

  core shared_;
  std::size_t largest_window_;
  eviction_places places_;
  bool background_reclaiming_ = false;  // between the watermarks; the evictor's thread alone
  std::array<std::unique_ptr<evictor>, evictors> evictors_;
  std::atomic<bool> forking_{false};  // a fork waits for locks
  spin_lock tending_;
  spin_lock fetchers_lock_;
  std::array<std::unique_ptr<fetcher>, maximum_fetchers> fetchers_;
  std::atomic<std::size_t> fetcher_count_{0};
  std::array<std::unique_ptr<object_reader>, maximum_readers> readers_;  // added under fetchers_lock_
  std::atomic<std::size_t> reader_count_{0};
};

}  // namespace far::engine
