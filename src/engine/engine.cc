#include "engine/engine.h"

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "base/check.h"
#include "base/log.h"
#include "engine/ranges.h"
#include "engine/rescue.h"

namespace far::engine {
namespace {

// A prefetch window holds what is on its way during one round trip: latency times bandwidth. A far tier whose speed is
// not known, or which has no latency to speak of, gets the largest: the more pages, the less each pays for the fault.
std::size_t window_for(const backend::speed& expected, std::uint64_t budget_pages) {
  constexpr std::size_t smallest = 32;
  constexpr std::size_t largest = batch_pages - 1;
  if (expected.latency_ns == 0 || expected.bytes_per_second == 0) {
    return std::min<std::size_t>(largest, std::max<std::uint64_t>(1, budget_pages / 32));
  }
  const double bytes = static_cast<double>(expected.latency_ns) * 1e-9 * static_cast<double>(expected.bytes_per_second);
  const auto wanted = static_cast<std::size_t>(bytes / static_cast<double>(page_bytes));
  return std::min<std::size_t>(std::clamp(wanted, smallest, largest), std::max<std::uint64_t>(1, budget_pages / 32));
}

}  // namespace

engine::engine(platform::address_space& space, backend::backend& far, const platform::clock& time,
               const options& chosen)
    : shared_(space, far, time, chosen.heap_pages, chosen.budget_pages, chosen.tracks_writes, chosen.reads_parts),
      largest_window_(window_for(far.expected_speed(), chosen.budget_pages)),
      places_(chosen.where, chosen.measures_where) {}

result<std::unique_ptr<engine>> engine::create(platform::address_space& space, backend::backend& far,
                                               const platform::clock& time, const options& chosen) {
  std::unique_ptr<engine> created(new engine(space, far, time, chosen));
  core& shared = created->shared_;
  shared.filter = chosen.filter;
  shared.read_patience_ns = chosen.read_patience_ns;
  result<std::unique_ptr<policy>> order = make_policy(chosen.policy, shared.pages);
  if (!order) return order.error();
  shared.order = std::move(order).value();
  shared.staging = space.map_staging(evictors * evictor::staging_pages);
  shared.rescued = reinterpret_cast<std::atomic<std::uint8_t>*>(platform::map_local(evictors * evictor::staging_pages));
  shared.zeros = platform::map_local(batch_pages * page_bytes);
  for (std::size_t i = 0; i < evictors; ++i) {
    result<std::unique_ptr<evictor>> made = evictor::create(shared, i * evictor::staging_pages);
    if (!made) return made.error();
    created->evictors_[i] = std::move(made).value();
  }
  return created;
}

engine::~engine() {
  for (std::unique_ptr<evictor>& each : evictors_) each.reset();
  for (std::unique_ptr<fetcher>& each : fetchers_) each.reset();
  for (std::unique_ptr<object_reader>& each : readers_) each.reset();
  if (shared_.staging != nullptr) shared_.space.unmap_staging(shared_.staging, evictors * evictor::staging_pages);
  if (shared_.zeros != nullptr) platform::unmap_local(shared_.zeros, batch_pages * page_bytes);
  if (shared_.rescued != nullptr) {
    platform::unmap_local(reinterpret_cast<std::byte*>(shared_.rescued), evictors * evictor::staging_pages);
  }
}

result<fetcher*> engine::add_fetcher() {
  const std::lock_guard guard(fetchers_lock_);
  const std::size_t index = fetcher_count_.load(std::memory_order_relaxed);
  if (index == maximum_fetchers) return error{"too many fetchers", 0};
  result<std::unique_ptr<fetcher>> made = fetcher::create(shared_);
  if (!made) return made.error();
  fetchers_[index] = std::move(made).value();
  fetcher_count_.store(index + 1, std::memory_order_release);
  return fetchers_[index].get();
}

result<object_reader*> engine::add_object_reader() {
  FAR_CHECK(shared_.checks.by_pieces(), "object readers were announced when the engine was made");
  const std::lock_guard guard(fetchers_lock_);
  const std::size_t index = reader_count_.load(std::memory_order_relaxed);
  if (index == maximum_readers) return error{"too many object readers", 0};
  result<std::unique_ptr<object_reader>> made = object_reader::create(shared_);
  if (!made) return made.error();
  readers_[index] = std::move(made).value();
  reader_count_.store(index + 1, std::memory_order_release);
  return readers_[index].get();
}

outcome engine::miss(fetcher& by, read_ahead_state& streams, page_id page, bool write, bool may_fill) {
  const page_word word = shared_.pages.load(page);
  switch (word.where()) {
    case state::untouched: return may_fill ? fill_with_zeros(streams, page, write) : outcome::resolved;
    case state::remote: return fetch(by, streams, page, write);
    case state::resident: return on_resident(page, write);
    case state::evicting:
      if (word.lifted() && rescue(shared_, page, word)) return outcome::resolved;
      return outcome::busy;
    case state::fetching: by.poll(caller::of_program); return outcome::busy;
    case state::lost: return outcome::lost;
    case state::foreign:
      // Reported just before something else was mapped there.
      shared_.space.wake({page, 1});
      return outcome::resolved;
  }
  FAR_CHECK(false, "a page is in exactly one state");
}

window engine::look_ahead(read_ahead_state& streams, page_id page) {
  prefetch_feedback feedback;
  const window ahead = streams.observe(page, largest_window_, &feedback);
  if (feedback.used_pages > 0) shared_.count.prefetch_hits.add(feedback.used_pages);
  return ahead;
}

outcome engine::fetch(fetcher& by, read_ahead_state& streams, page_id page, bool write) {
  // Asked before the stream is told: a miss that must be repeated is still one miss.
  if (shared_.local.free_pages() <= 0 && !shared_.stalled()) return outcome::no_budget;
  const window ahead = look_ahead(streams, page);
  std::size_t prefetched = 0;
  const outcome reached = by.fetch(page, write, ahead, &prefetched);
  streams.note_fetched(ahead, prefetched);
  return reached;
}

outcome engine::fill_with_zeros(read_ahead_state& streams, page_id page, bool write) {
  // Held until the page is in place: the block must not be freed, and stop being guarded, in between.
  block& holder = shared_.blocks.holding(page);
  const std::lock_guard guard(holder.lock);
  if (holder.kind != block_kind::guarded) {
    // Reported just before its block was freed, or opened again: the kernel fills it.
    shared_.space.wake({page, 1});
    return outcome::resolved;
  }
  if (!shared_.charge_for_miss()) return outcome::no_budget;
  page_word word = shared_.pages.load(page);
  if (word.where() != state::untouched || !shared_.pages.transition(page, word, word.with_state(state::fetching))) {
    shared_.local.release(1);
    return outcome::busy;
  }
  const window ahead = look_ahead(streams, page);
  const std::size_t count = 1 + (ahead.stride == 1 ? claim_untouched(page + 1, ahead.count) : 0);
  streams.note_fetched(ahead, 0);
  const bool writable = write || !shared_.writes_tracked;
  int failure = 0;
  std::size_t done = 0;
  backoff waiting;
  while (done < count) {
    done +=
        shared_.space.install({page + done, count - done}, shared_.zeros,
                              writable ? platform::mapping::writable : platform::mapping::write_protected, &failure);
    if (done == count) break;
    wait_for_kernel_memory(failure, &waiting);
  }
  for (page_id filled = page; filled < page + count; ++filled) {
    shared_.pages.update(filled, [writable](page_word each) {
      return each.with_state(state::resident).with_dirty(writable).with_accessed(false).with_fetched(false);
    });
    shared_.admit(filled, temperature::warm);
  }
  shared_.count.zero_fills.add(count);
  return outcome::resolved;
}

engine::prospect engine::expect_use(page_id page, bool write, bool by_scan) {
  const page_word word = shared_.pages.load(page);
  if (word.where() == state::lost || word.where() == state::foreign) return prospect::lost;
  if (word.where() == state::untouched) {
    // The kernel fills the pages of an open block. Without its lock: a signal's handler may come in between, and touch
    // memory of the same block.
    const block& holder = shared_.blocks.holding(page);
    if (holder.kind != block_kind::open) return prospect::untouched;
    if (by_scan) return prospect::ready;
    shared_.pages.uses.note(page, true);
    if (holder.kind != block_kind::open) shared_.pages.uses.erase(page);  // as below
    return prospect::ready;
  }
  if (word.where() != state::resident || (write && !word.dirty())) return prospect::missing;
  if (by_scan) return prospect::ready;
  shared_.pages.uses.note(page, word.dirty());
  // Perhaps the evictor has claimed it, and erased the mark, before it was made.
  if (shared_.pages.load_in_order(page).where() != state::resident) shared_.pages.uses.erase(page);
  return prospect::ready;
}

void engine::set_eviction_priority(page_id page, unsigned priority) {
  page_word word = shared_.pages.load(page);
  while (word.eviction_priority() != priority) {
    if (shared_.pages.transition(page, word, word.with_eviction_priority(priority))) return;
  }
}

// Claims untouched neighbours in the same block, if the program has allocated all of it: zeroed ahead, they cost no
// fault of their own. Requires: the block's lock is held.
std::size_t engine::claim_untouched(page_id first, std::size_t most) {
  const block_id which = block_of(first - 1);
  if (shared_.blocks.at(which).allocated_pages != block_pages) return 0;
  const std::uint64_t reserve = shared_.local.low_watermark_pages() / 2;
  std::size_t count = 0;
  for (page_id page = first; count < most && block_of(page) == which; ++page, ++count) {
    page_word word = shared_.pages.load(page);
    if (word.where() != state::untouched || !shared_.local.try_charge(1, reserve)) break;
    if (shared_.pages.transition(page, word, word.with_state(state::fetching))) continue;
    shared_.local.release(1);
    break;
  }
  return count;
}

outcome engine::on_resident(page_id page, bool write) {
  const page_word word = shared_.pages.load(page);
  if (word.where() != state::resident) return outcome::busy;
  if (write && !word.dirty()) return first_write(page, word);
  bool filled = true;
  shared_.space.query_filled({page, 1}, {&filled, 1});
  if (!filled) return note_lost_mapping(page, word) ? outcome::busy : outcome::in_flight;
  shared_.space.wake({page, 1});
  return outcome::resolved;
}

// The first write to a clean page: its slot is stale from now on. When the pages before it were written too, a stream
// of writes is passing, and the pages after it are taken for dirty as well, which saves their faults.
outcome engine::first_write(page_id page, page_word word) {
  constexpr std::size_t most_ahead = 16;
  std::size_t written_before = 0;
  while (written_before < most_ahead && page > written_before) {
    const page_word before = shared_.pages.load(page - 1 - written_before);
    if (before.where() != state::resident || !before.dirty()) break;
    ++written_before;
  }
  // The pages are claimed until the kernel lets them be written: were they only marked dirty, they could be evicted and
  // fetched again meanwhile, and the permission would come to clean pages whose writes nobody notices.
  std::size_t count = 0;
  for (; count <= written_before && page + count < shared_.pages.pages(); ++count) {
    if (count > 0) word = shared_.pages.load(page + count);
    if (word.where() != state::resident || word.dirty()) break;
    if (!shared_.pages.transition(page + count, word, word.with_state(state::evicting).with_lifted(false))) break;
  }
  if (count == 0) return outcome::busy;
  shared_.space.allow_write({page, count});
  for (page_id written = page; written < page + count; ++written) {
    const page_word before = shared_.pages.load(written);
    shared_.pages.update(written, [](page_word each) {
      return each.with_state(state::resident).with_dirty(true).with_accessed(true).with_place(page_word::no_place);
    });
    if (before.writes_expected()) shared_.writes.note(true);
    if (before.has_place()) shared_.free_slot(before.place());
    shared_.admit(written, temperature::warm);  // the policy may have named it as a victim meanwhile
  }
  shared_.count.write_faults.add();
  return outcome::resolved;
}

// The kernel has no bytes for a Resident page. Returns whether it is Untouched now.
bool engine::note_lost_mapping(page_id page, page_word word) {
  if (!shared_.pages.transition(page, word, word.with_state(state::evicting).with_lifted(false))) return false;
  if (shared_.forget_if_dropped(page)) return true;
  shared_.pages.update(page, [](page_word each) { return each.with_state(state::resident); });
  shared_.admit(page, temperature::warm);
  return false;
}

bool engine::help(caller who) {
  bool progress = false;
  for (std::size_t i = 0; i < fetcher_count_.load(std::memory_order_acquire); ++i) {
    fetcher& each = *fetchers_[i];
    if (each.idle() || !each.lock.try_lock()) continue;
    progress |= each.poll(who);
    each.lock.unlock();
  }
  for (std::size_t i = 0; i < reader_count_.load(std::memory_order_acquire); ++i) {
    object_reader& each = *readers_[i];
    if (each.idle() || !each.lock.try_lock()) continue;
    progress |= each.poll(who);
    each.lock.unlock();
  }
  for (const std::unique_ptr<evictor>& each : evictors_) {
    if (each->idle() || !each->lock.try_lock()) continue;
    progress |= each->step(false, who);
    each->lock.unlock();
  }
  return progress;
}

bool engine::reclaim_at_miss(caller who) {
  if (!wants_reclaim()) return false;
  const bool background_is_late = !has_frames_ahead() && !shared_.stalled() && places_.free_to_choose();
  if (!background_is_late && places_.next() != eviction_place::at_miss) return false;
  return reclaim_if(true, eviction_place::at_miss, who);
}

// What has begun goes on until the high watermark, so that the thread is not woken for every batch.
bool engine::reclaim_in_background() {
  const bool here = places_.next() == eviction_place::background;
  background_reclaiming_ = wants_background() || (here && background_reclaiming_ && shared_.local.below_high());
  if (!background_reclaiming_) return false;
  return reclaim_if(true, eviction_place::background, caller::of_runtime);
}

bool engine::reclaim_if(bool wanted, eviction_place place, caller who) {
  bool progress = false;
  const platform::holds_up_forks waited_for;
  const std::uint64_t since_ns = shared_.time.now_ns();
  for (const std::unique_ptr<evictor>& each : evictors_) {
    if (!wanted && each->idle()) continue;
    if (!each->lock.try_lock()) continue;
    progress |= each->step(wanted, who);
    const std::size_t pages = each->started_pages();
    each->lock.unlock();
    if (pages > 0) places_.note(place, shared_.time.now_ns() - since_ns, pages);
    if (progress) break;
  }
  return progress;
}

bool engine::has_left_transfers() const {
  for (std::size_t i = 0; i < fetcher_count_.load(std::memory_order_acquire); ++i) {
    if (fetchers_[i]->has_left()) return true;
  }
  for (std::size_t i = 0; i < reader_count_.load(std::memory_order_acquire); ++i) {
    if (readers_[i]->has_left()) return true;
  }
  return has_left_writes();
}

bool engine::transfers_under_way() const {
  for (std::size_t i = 0; i < fetcher_count_.load(std::memory_order_acquire); ++i) {
    if (!fetchers_[i]->idle()) return true;
  }
  for (std::size_t i = 0; i < reader_count_.load(std::memory_order_acquire); ++i) {
    if (!readers_[i]->idle()) return true;
  }
  return std::any_of(evictors_.begin(), evictors_.end(), [](const auto& each) { return !each->idle(); });
}

bool engine::transfers_unattended() const {
  for (std::size_t i = 0; i < fetcher_count_.load(std::memory_order_acquire); ++i) {
    if (fetchers_[i]->unattended()) return true;
  }
  return std::any_of(evictors_.begin(), evictors_.end(), [](const auto& each) { return !each->idle(); });
}

bool engine::try_pin(page_id page) {
  const auto with_pin = [](page_word word) {
    FAR_CHECK(word.pins() < page_word::maximum_pins, "a page is pinned by fewer than 256 callers");
    return word.with_pins(word.pins() + 1);
  };
  page_word word = shared_.pages.load(page);
  while (word.where() == state::resident && word.dirty()) {
    if (shared_.pages.transition(page, word, with_pin(word))) return true;
  }
  if (word.where() == state::foreign) {
    shared_.pages.update(page, with_pin);
    return true;
  }
  if (word.where() != state::untouched) return false;
  block& holder = shared_.blocks.holding(page);
  const std::lock_guard guard(holder.lock);
  if (holder.kind == block_kind::guarded) return false;
  // What the kernel has filled stays when the block is closed; everything else in it becomes guarded. What the kernel
  // does not fill, as it may only be read, is filled by us, in a block that is closed now.
  bool filled = shared_.space.populate({page, 1});
  if (!filled) shared_.space.query_filled({page, 1}, {&filled, 1});
  if (!filled && close_block(shared_, block_of(page))) return false;
  shared_.pages.update(page, with_pin);
  return true;
}

void engine::unpin(page_id page) {
  shared_.pages.update(page, [](page_word word) {
    FAR_CHECK(word.pins() > 0, "a page is unpinned as often as it was pinned");
    return word.with_pins(word.pins() - 1);
  });
}

void engine::resize(std::uint64_t budget_pages) {
  shared_.local.resize(budget_pages);
  shared_.allow_excess();
}

statistics engine::snapshot() const {
  const counters& count = shared_.count;
  statistics now;
  now.budget_bytes = shared_.local.limit_pages() * page_bytes;
  now.local_bytes = shared_.local.charged_pages() * page_bytes;
  now.peak_local_bytes = shared_.local.peak_pages() * page_bytes;
  const backend::capacity far = shared_.far.report();
  now.far_bytes = far.used_slots * page_bytes;
  now.peak_far_bytes = count.peak_far_pages.get() * page_bytes;
  now.far_stored_bytes = far.occupied_bytes();
  now.peak_far_stored_bytes = std::max(count.peak_far_stored_bytes.get(), now.far_stored_bytes);
  now.misses = count.misses.get();
  now.waits = count.waits.get();
  now.rescues = count.rescues.get();
  now.zero_fills = count.zero_fills.get();
  now.write_faults = count.write_faults.get();
  now.hinted_misses = count.hinted_misses.get();
  now.wait_ns = count.wait_ns.get();
  now.prefetched_pages = count.prefetched_pages.get();
  now.prefetch_hits = count.prefetch_hits.get();
  now.fetched_pages = count.fetched_pages.get();
  now.evicted_pages = count.evicted_pages.get();
  now.clean_evictions = count.clean_evictions.get();
  now.written_pages = count.written_pages.get();
  now.direct_reclaims = count.direct_reclaims.get();
  now.backend_errors = count.backend_errors.get();
  now.over_budget_pages = count.over_budget_pages.get();
  return now;
}

}  // namespace far::engine
