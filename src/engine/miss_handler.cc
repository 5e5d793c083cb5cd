#include "engine/miss_handler.h"

#include <algorithm>

#include "base/check.h"
#include "base/lock_guard.h"
#include "engine/block_guards.h"
#include "engine/rescue.h"

namespace far::engine {
namespace {

// A prefetch window covers one round trip: latency times bandwidth. A far tier of unknown speed, or with hardly any
// latency, gets the largest window: the more pages, the smaller the share of each in the cost of the fault.
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

// Whether an Untouched page gets zeros for it.
bool fills(demand cause) {
  return cause == demand::access || cause == demand::place;
}

}  // namespace

miss_handler::miss_handler(core_for_misses& shared, bool regions_come_whole)
    : shared_(shared),
      largest_window_(window_for(shared.far.expected_speed(), shared.local.limit_pages())),
      neighbours_(shared.pages, shared.evictions, shared.count, regions_come_whole) {}

outcome miss_handler::handle(fetcher& fetcher, read_ahead_state& streams, page_id page, bool write, demand cause) {
  const page_word word = shared_.pages.load(page);
  switch (word.where()) {
    case state::untouched: return fills(cause) ? fill_with_zeros(page, write) : outcome::resolved;
    case state::remote:
      if (cause == demand::place && shared_.far.away_since_ns(word.place()) != 0) return outcome::lost;
      return fetch(fetcher, streams, page, write, cause);
    case state::resident: return on_resident(page, write);
    case state::evicting:
      if (word.lifted() && rescue(shared_, page, word)) return outcome::resolved;
      return outcome::busy;
    case state::fetching:
      fetcher.poll(caller::of_program);
      return cause == demand::place && is_out_of_reach(page) ? outcome::lost : outcome::busy;
    case state::lost: return outcome::lost;
    case state::foreign:
      // Reported just before something else was mapped there.
      shared_.space.wake({page, 1});
      return outcome::resolved;
  }
  FAR_CHECK(false, "a page is in exactly one state");
}

// Whether it is on its way from where nobody answers. It may have no place: it is being filled with zeros.
bool miss_handler::is_out_of_reach(page_id page) const {
  const page_word word = shared_.pages.load(page);
  return word.where() == state::fetching && word.has_place() && shared_.far.away_since_ns(word.place()) != 0;
}

void miss_handler::forget_lost(page_id page) {
  page_word word = shared_.pages.load(page);
  while (word.where() == state::lost) {
    const page_word before = word;
    const page_word untouched =
        word.with_state(state::untouched).with_eviction_priority(0).with_place(page_word::no_place);
    if (!shared_.pages.transition(page, word, untouched)) continue;
    if (before.has_place()) shared_.free_slot(before.place());
    return;
  }
}

window miss_handler::look_ahead(read_ahead_state& streams, page_id page) {
  neighbours_.note_miss(page);
  prefetch_feedback feedback;
  const window ahead = streams.observe(shared_.pages, page, largest_window_, &feedback);
  if (feedback.used_pages > 0) shared_.count.prefetch_hits.add(feedback.used_pages);
  return ahead;
}

// For a page that continues no stream of its thread, its neighbours decide.
window miss_handler::look_around(page_id page) {
  constexpr std::size_t least_run = 2;  // a single neighbour is often chance
  const std::size_t returned = returned_before(shared_.pages, page, largest_window_ / 2);
  if (returned >= least_run) return {.stride = 1, .count = 2 * returned};
  return largest_window_ < neighbourhood::region_pages ? window{} : neighbours_.around(page);
}

outcome miss_handler::fetch(fetcher& fetcher, read_ahead_state& streams, page_id page, bool write, demand cause) {
  // Asked before the stream is told: a miss that must be repeated is still one miss.
  if (shared_.local.free_pages() <= 0 && !shared_.stalled()) return outcome::no_budget;
  const window ahead = look_ahead(streams, page);
  std::size_t prefetched = 0;
  if (ahead.count == 0) {
    const window neighbours = look_around(page);
    const outcome reached = fetcher.fetch(page, write, cause, neighbours, &prefetched);
    if (!neighbours.is_walk) shared_.count.around_pages.add(prefetched);
    return reached;
  }
  const outcome reached = fetcher.fetch(page, write, cause, ahead, &prefetched);
  streams.note_fetched(ahead, prefetched);
  return reached;
}

// Fills as many pages ahead as are filled behind, so a buffer that is written from start to end faults once for each
// doubling; and one that is written from its end, as memcpy() does where both buffers lie alike in their pages.
outcome miss_handler::fill_with_zeros(page_id page, bool write) {
  // Held until the page is in place: the block must not be freed, and stop being guarded, in between.
  block& holder = shared_.blocks.holding(page);
  const lock_guard guard(holder.lock);
  if (holder.kind != block_kind::guarded) {
    // Reported just before its block was freed, or opened again: the kernel fills it, where it could end the guard.
    fill_guarded(shared_, {page, 1});
    shared_.space.wake({page, 1});
    return outcome::resolved;
  }
  if (!shared_.charge_for_miss()) return outcome::no_budget;
  page_word word = shared_.pages.load(page);
  if (word.where() != state::untouched || !shared_.pages.transition(page, word, word.with_state(state::fetching))) {
    shared_.local.release(1);
    return outcome::busy;
  }
  const page_range filled = claim_neighbours(page);
  put_zeros(filled, write || !shared_.writes_tracked, /*is_walk=*/false);
  shared_.count.zero_fills.add(filled.count);
  return outcome::resolved;
}

// Requires: at most batch_pages, Fetching, without a place: the child of a fork asks the kernel whether it has them.
void miss_handler::put_zeros(page_range claimed, bool writable, bool is_walk) {
  int failure = 0;
  std::size_t done = 0;
  backoff waiting;
  while (done < claimed.count) {
    done +=
        shared_.space.install({claimed.first + done, claimed.count - done}, shared_.zeros,
                              writable ? platform::mapping::writable : platform::mapping::write_protected, &failure);
    if (done == claimed.count) break;
    wait_for_kernel_memory(failure, &waiting);
  }
  for (page_id page = claimed.first; page < claimed.end(); ++page) {
    const page_word filled = shared_.pages.update(page, [writable](page_word now) {
      return now.with_state(state::resident).with_dirty(writable).with_accessed(false).with_fetched(false);
    });
    const unsigned epochs_away = shared_.evictions.epochs_since(filled.epoch());
    const bool passes = is_walk && epochs_away >= eviction_clock::epochs_a_budget;
    shared_.admit(page, passes ? temperature::passing : temperature::warm);
  }
}

std::size_t miss_handler::bring_empty(page_range range, unsigned eviction_priority) {
  std::size_t brought = 0;
  for (page_id page = range.first; page < range.end();) {
    page_range claimed{page, 0};
    while (claimed.count < batch_pages && claimed.end() < range.end() &&
           claim_remote(claimed.end(), eviction_priority)) {
      ++claimed.count;
    }
    if (claimed.count > 0) put_zeros(claimed, /*writable=*/true, /*is_walk=*/true);
    brought += claimed.count;
    page = claimed.count > 0 ? claimed.end() : page + 1;
  }
  return brought;
}

// The page, and untouched neighbours in the same block, if the program has allocated all of it: zeroed ahead, they cost
// no fault of their own. Requires: the page is claimed, and the block's lock is held.
page_range miss_handler::claim_neighbours(page_id page) {
  const block_id id = block_of(page);
  const block& holder = shared_.blocks.at(id);
  holder.lock.assert_held();
  page_range claimed{page, 1};
  if (holder.allocated_pages != block_pages) return claimed;
  if (const std::size_t before = filled_before(shared_.pages, page, batch_pages - 1); before > 0) {
    while (claimed.count <= before && block_of(page + claimed.count) == id && claim_untouched(page + claimed.count)) {
      ++claimed.count;
    }
    return claimed;
  }
  const std::size_t after = filled_after(shared_.pages, page, batch_pages - 1);
  while (claimed.count <= after && block_of(claimed.first - 1) == id && claim_untouched(claimed.first - 1)) {
    --claimed.first;
    ++claimed.count;
  }
  return claimed;
}

// False when somebody has touched it, or frames are needed for misses.
bool miss_handler::claim_untouched(page_id page) {
  page_word word = shared_.pages.load(page);
  if (word.where() != state::untouched || !shared_.local.try_charge(1, shared_.local.low_watermark_pages() / 2)) {
    return false;
  }
  if (shared_.pages.transition(page, word, word.with_state(state::fetching))) return true;
  shared_.local.release(1);
  return false;
}

bool miss_handler::claim_remote(page_id page, unsigned eviction_priority) {
  page_word word = shared_.pages.load(page);
  if (!comes_as_page(word) || !shared_.local.try_charge(1)) return false;
  const page_word before = word;
  const page_word empty =
      word.with_state(state::fetching).with_eviction_priority(eviction_priority).with_place(page_word::no_place);
  if (!shared_.pages.transition(page, word, empty)) {
    shared_.local.release(1);
    return false;
  }
  if (before.has_place()) shared_.free_slot(before.place());
  return true;
}

outcome miss_handler::on_resident(page_id page, bool write) {
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
outcome miss_handler::first_write(page_id page, page_word word) {
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
    shared_.pages.update(written, [](page_word now) {
      return now.with_state(state::resident).with_dirty(true).with_accessed(true).with_place(page_word::no_place);
    });
    if (before.writes_expected()) shared_.writes.note(true);
    if (before.has_place() && written == page) shared_.later_writes.note(true);
    if (before.has_place()) shared_.free_slot(before.place());
    shared_.admit(written, temperature::warm);  // the policy may have named it as a victim meanwhile
  }
  shared_.count.write_faults.add();
  return outcome::resolved;
}

// The kernel has no bytes for a Resident page. Returns whether it is Untouched now.
bool miss_handler::note_lost_mapping(page_id page, page_word word) {
  if (!shared_.pages.transition(page, word, word.with_state(state::evicting).with_lifted(false))) return false;
  if (shared_.forget_if_dropped(page)) return true;
  shared_.pages.update(page, [](page_word now) { return now.with_state(state::resident); });
  shared_.admit(page, temperature::warm);
  return false;
}

}  // namespace far::engine
