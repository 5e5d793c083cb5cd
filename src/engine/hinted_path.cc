#include "engine/hinted_path.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "base/lock_guard.h"

namespace far::engine {
namespace {

constexpr std::int64_t most_read_ahead = 64;  // pages, either way
// The rest of a larger region is only read ahead: if a thread waited for all of it, its beginning might leave again.
constexpr std::size_t most_awaited = 64;
// Shorter read-ahead is not worth a transfer for each half of it.
constexpr page_id least_halved = 8;

page_range between(page_id first, page_id last) {
  return {first, static_cast<std::size_t>(last - first + 1)};
}

}  // namespace

hinted_path::plan hinted_path::look(page_id first, page_id last, const hint& about) noexcept {
  const page_id last_awaited = std::min(last, first + most_awaited - 1);
  plan chosen;
  page_id missing = first;
  while (missing <= last_awaited && expect(missing, about, chosen.has_filled) != prospect::missing) ++missing;
  const std::int64_t ahead = std::clamp<std::int64_t>(about.read_ahead_pages, -most_read_ahead, most_read_ahead);
  chosen.first = missing;
  if (missing > last_awaited && !(about.prefetch && missing <= last)) {
    if (about.sequential) chosen.ahead = from_first_remote(next_half(ahead < 0 ? first : last, ahead));
    return chosen;
  }
  const page_id from = ahead < 0 ? missing - std::min(missing, static_cast<page_id>(-ahead)) : missing;
  const page_id to = ahead > 0 ? std::min(last + static_cast<page_id>(ahead), engine_.view().pages() - 1) : last;
  if (about.prefetch || from < to) chosen.ahead = between(from, to);
  if (!about.prefetch) chosen.end = last_awaited + 1;
  return chosen;
}

// A scan has come to `page`. When half of what was read ahead is used up, as much again starts on its way, so that it
// is there when it is wanted. Halves begin at multiples of their size, so nothing has to be remembered.
page_range hinted_path::next_half(page_id page, std::int64_t ahead) const noexcept {
  const auto distance = static_cast<page_id>(std::abs(ahead));
  if (distance < least_halved || page % (distance / 2) != 0) return {};
  const page_id from = ahead > 0 ? page + 1 : page - std::min(page, distance);
  const page_id to = ahead > 0 ? std::min(page + distance, engine_.view().pages() - 1) : page;
  return from < to ? between(from, to) : page_range{};
}

// Fresh memory is filled here, and `has_filled` set.
prospect hinted_path::expect(page_id page, const hint& about, bool& has_filled) noexcept {
  prospect found = engine_.hints().expect(page, about.write, about.sequential);
  if (found == prospect::untouched) {
    const bool done = pages_.fill(page, about.write);
    has_filled |= done;
    found = done ? prospect::ready : prospect::lost;
  }
  if (found != prospect::lost) engine_.hints().set_eviction_priority(page, about.eviction_priority);
  return found;
}

prospect hinted_path::expect_again(page_id page, const hint& about) noexcept {
  const engine_section inside(host_);
  bool has_filled = false;
  return expect(page, about, has_filled);
}

bool hinted_path::follow(const plan& chosen, const hint& about) noexcept {
  bool is_unattended = prefetch(chosen.ahead, &about);
  const bool has_started = is_unattended;
  const demand cause = about.sequential && chosen.first + 1 < chosen.end ? demand::walk : demand::hint;
  for (page_id page = chosen.first; page < chosen.end; ++page) {
    if (expect_again(page, about) != prospect::missing) continue;
    engine_.count().hinted_misses.add();
    pages_.bring({.page = page, .write = about.write, .cause = cause});
    is_unattended = false;
    static_cast<void>(expect_again(page, about));  // may mark it
  }
  if (is_unattended) look_after_transfers(engine_, host_);
  return chosen.first < chosen.end || (about.prefetch && has_started);
}

page_range hinted_path::from_first_remote(page_range range) const noexcept {
  while (range.count > 0 && !engine_.view().is_remote(range.first)) range = {range.first + 1, range.count - 1};
  return range;
}

// A page that does not come now is waited for later: the time is better spent on making room. Once only: a range that
// is larger than the budget would push out its own beginning.
void hinted_path::make_room() noexcept {
  if (engine_.eviction().has_frames_ahead()) return;
  if (miss::reclaim_at_miss(engine_, host_, caller::of_program)) look_after_transfers(engine_, host_);
}

bool hinted_path::bring_empty(page_range range, unsigned eviction_priority) noexcept {
  constexpr unsigned most_batches = 8;
  bool has_brought = false;
  make_room();
  for (unsigned i = 0; i < most_batches; ++i) {
    range = from_first_remote(range);
    if (range.count == 0) break;
    std::size_t brought = 0;
    {
      const engine_section inside(host_);
      brought = engine_.misses().bring_empty(range, eviction_priority);
    }
    has_brought |= brought > 0;
    // If no frame becomes free, the access waits for one.
    if (brought < range.count && !miss::reclaim(engine_, host_, caller::of_program)) break;
  }
  return has_brought;
}

bool hinted_path::prefetch(page_range range, const hint* about) noexcept {
  const bool is_long = range.count > 1;
  range = from_first_remote(range);
  if (range.count == 0) return false;
  fetcher::expectation of;
  if (about != nullptr) {
    const bool is_wanted = about->prefetch && about->read_ahead_pages == 0;
    of = {about->write, is_wanted, is_wanted && is_long && about->sequential, about->eviction_priority};
  }
  make_room();
  bool has_started = false;
  while (range.count > 0 && engine_.eviction().has_frames_ahead()) {
    const page_range part{range.first, std::min(range.count, batch_pages)};
    fetcher* const fetcher = fetchers_.try_lock(host_.preferred_fetcher());
    if (fetcher == nullptr) break;
    fetcher->lock.assert_held();
    const lock_guard guard(fetcher->lock, std::adopt_lock);
    const engine_section inside(host_);
    has_started |= fetcher->prefetch(part, of) > 0;
    range = {range.first + part.count, range.count - part.count};
  }
  return has_started;
}

}  // namespace far::engine
