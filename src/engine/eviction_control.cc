#include "engine/eviction_control.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/backoff.h"
#include "base/check.h"
#include "base/lock_guard.h"
#include "engine/block_guards.h"
#include "platform/fork_order.h"

namespace far::engine {
namespace {

constexpr std::uint64_t longest_wait_under_lock_ns = 1'000'000;
// How long a call waits for slots that a server is to lend.
constexpr std::uint64_t slots_patience_ns = 1'000'000'000;

}  // namespace

bool eviction_control::reclaim_at_miss(caller who) {
  if (!wants_reclaim()) return false;
  const bool background_is_late = !has_frames_ahead() && !shared_.stalled() && places_.free_to_choose();
  if (!background_is_late && places_.next() != eviction_place::at_miss) return false;
  return reclaim_if(true, eviction_place::at_miss, who);
}

// Eviction goes on until the high watermark, so that the thread is not woken for every batch.
bool eviction_control::reclaim_in_background() {
  const bool here = places_.next() == eviction_place::background;
  background_reclaiming_ = wants_background() || (here && background_reclaiming_ && shared_.local.below_high());
  if (!background_reclaiming_) return false;
  return reclaim_if(true, eviction_place::background, caller::of_runtime);
}

bool eviction_control::reclaim_if(bool wanted, eviction_place place, caller who) {
  bool progress = false;
  const platform::holds_up_forks waited_for;
  const std::uint64_t since_ns = shared_.time.now_ns();
  for (const std::unique_ptr<evictor>& evictor : transfers_.evictors()) {
    if (!wanted && evictor->idle()) continue;
    if (!evictor->lock.try_lock()) continue;
    progress |= evictor->step(wanted, who);
    const std::size_t pages = evictor->started_pages();
    evictor->lock.unlock();
    if (pages > 0) places_.note(place, shared_.time.now_ns() - since_ns, pages);
    if (progress) break;
  }
  return progress;
}

void eviction_control::resize(std::uint64_t budget_pages) {
  shared_.local.resize(budget_pages);
  shared_.allow_excess();
}

void eviction_control::set_aside(std::uint64_t pages) {
  shared_.local.set_aside(pages);
  shared_.allow_excess();
}

void eviction_control::restart_in_child() {
  background_reclaiming_ = false;
  fork_waits_.store(false);
}

// In two passes: batches are submitted first and waited for afterwards, so that the writes of one overlap with the work
// on the next.
void eviction_control::evict(page_range range, std::size_t pages_a_batch, host* around) {
  FAR_CHECK(pages_a_batch > 0 && pages_a_batch <= batch_pages, "a batch has 1 to 64 pages");
  for_each_block(range, [this](block_id id, page_range) {
    block& holder = shared_.blocks.at(id);
    const lock_guard guard(holder.lock);
    if (holder.kind == block_kind::open) static_cast<void>(close_block(shared_, id));
  });
  std::array<page_id, batch_pages> victims;
  std::size_t count = 0;
  bool waits_for_slots = true;
  for (page_id page = range.first; page < range.end(); ++page) {
    if (shared_.pages.load(page).where() == state::resident) victims[count++] = page;
    if (count < pages_a_batch && (count == 0 || page + 1 < range.end())) continue;
    waits_for_slots &= evict_batch({victims.data(), count}, around, waits_for_slots);
    count = 0;
  }
  for (page_id page = range.first; page < range.end(); ++page) {
    step_until(around, [this, page](evictor&) {
      const page_word word = shared_.pages.load(page);
      // Pages that other evictors have lifted are theirs.
      constexpr std::uint64_t first_of_last = (transfer_queues::evictor_count - 1) * evictor::staging_pages;
      return word.where() != state::evicting || !word.lifted() ||
             word.place() % transfer_queues::staging_pages < first_of_last;
    });
  }
}

// False: pages have stayed that a server has not lent slots for in time. A thread of the runtime asks it.
bool eviction_control::evict_batch(std::span<page_id> victims, host* around, bool waits_for_slots) {
  const std::uint64_t until_ns = shared_.time.now_ns() + slots_patience_ns;
  for (backoff turn;; turn.pause()) {
    bool awaits_slots = false;
    // This thread submits them even if it is one of the program's, because it waits for them afterwards.
    step_until(around, [&](evictor& evictor) {
      evictor.lock.assert_held();
      if (!evictor.evict(victims, caller::of_runtime)) return false;
      awaits_slots = evictor.awaits_slots();
      return true;
    });
    if (!awaits_slots) return true;
    if (!waits_for_slots || shared_.time.now_ns() >= until_ns) return false;
    const auto is_gone = [this](page_id page) { return shared_.pages.load(page).where() != state::resident; };
    victims = victims.first(
        static_cast<std::size_t>(std::remove_if(victims.begin(), victims.end(), is_gone) - victims.begin()));
    if (victims.empty()) return true;
    if (around != nullptr) around->wake_background();
  }
}

// Takes steps of the last evictor until `done(evictor)`, which is called with its lock held. The lock is given up after
// each step, because others wait for it: a fork, which holds the locks of the fetchers, so that every thread that
// misses waits, too; and the thread of the runtime to which writes are left. That thread may be asleep: it does not
// know of writes that this thread has left to it just now.
template <typename Done>
void eviction_control::step_until(host* around, Done done) {
  evictor& evictor = *transfers_.evictors().back();
  while (true) {
    for (backoff turn; fork_waits_.load(std::memory_order_acquire) || evictor.has_left_writes();) {
      if (around != nullptr && evictor.has_left_writes()) around->wake_background();
      turn.pause();
    }
    const lock_guard guard(evictor.lock);
    if (done(evictor)) return;
    if (!evictor.step(false, caller::of_program)) evictor.wait(longest_wait_under_lock_ns);
  }
}

}  // namespace far::engine
