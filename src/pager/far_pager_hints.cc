// The hinted path (Eden, section 3.2): what a hint brings in, on the calling thread or fiber, without a fault.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "pager/far_pager.h"
#include "platform/runtime_thread.h"

namespace far::pager {
namespace {

constexpr std::int64_t most_read_ahead = 64;  // pages, either way
// Of a larger region the rest is only read ahead: to wait for all of it might be to wait for its beginning to leave.
constexpr std::size_t most_awaited = 64;
// Shorter read-ahead is not worth a transfer for each half of it.
constexpr page_id least_halved = 8;

// First touches of the calling thread.
constinit thread_local engine::stream_table hint_streams;

}  // namespace

bool far_pager::expect_use(const std::byte* address, std::size_t bytes, const hint& about) noexcept {
  const page_id first = page_at(address);
  const auto offset = static_cast<std::uint64_t>(address - heap_.base());
  const page_id last =
      (offset + std::min<std::uint64_t>(std::max<std::size_t>(bytes, 1), heap_.bytes() - offset) - 1) >> page_shift;
  const page_id last_awaited = std::min(last, first + most_awaited - 1);
  page_id missing = first;
  bool filled = false;
  while (missing <= last_awaited && expect_page(missing, about, filled) != engine::engine::prospect::missing) ++missing;
  const std::int64_t ahead = std::clamp<std::int64_t>(about.read_ahead_pages, -most_read_ahead, most_read_ahead);
  const bool rest_is_wanted = about.prefetch && missing <= last;
  if (missing > last_awaited && !rest_is_wanted) {
    if (about.sequential) keep_ahead(ahead < 0 ? first : last, ahead, about);
    return filled;
  }
  const page_id from = ahead < 0 ? missing - std::min(missing, static_cast<page_id>(-ahead)) : missing;
  const page_id to = ahead > 0 ? std::min(last + static_cast<page_id>(ahead), pages() - 1) : last;
  const page_range wanted{from, static_cast<std::size_t>(to - from + 1)};
  if (about.prefetch) {
    const bool started = prefetch_range(wanted, &about);
    if (started) look_after_transfers();
    return started || filled;
  }
  std::optional<platform::runtime_section> section;
  if (!on_fiber()) section.emplace();
  bool unattended = from < to && prefetch_range(wanted, &about);
  for (page_id page = missing; page <= last_awaited; ++page) {
    if (expect_page(page, about, filled) != engine::engine::prospect::missing) continue;
    bring_expected(page, about);
    unattended = false;
  }
  if (unattended) look_after_transfers();
  return true;
}

// A scan has come to `page`. When half of what was read ahead is used up, as much again starts on its way, so that it
// is there when it is wanted. Halves begin at multiples of their size: nothing need be remembered.
void far_pager::keep_ahead(page_id page, std::int64_t ahead, const hint& about) noexcept {
  const auto distance = static_cast<page_id>(std::abs(ahead));
  if (distance < least_halved || page % (distance / 2) != 0) return;
  const page_id from = ahead > 0 ? page + 1 : page - std::min(page, distance);
  const page_id to = ahead > 0 ? std::min(page + distance, pages() - 1) : page;
  if (from < to && prefetch_range({from, static_cast<std::size_t>(to - from + 1)}, &about)) look_after_transfers();
}

// Fresh memory is filled here, and `filled` set.
engine::engine::prospect far_pager::expect_page(page_id page, const hint& about, bool& filled) noexcept {
  using prospect = engine::engine::prospect;
  prospect found = engine_->expect_use(page, about.write, about.sequential);
  if (found == prospect::untouched) {
    const bool done = fill_expected(page, about.write);
    filled |= done;
    found = done ? prospect::ready : prospect::lost;
  }
  if (found != prospect::lost) engine_->set_eviction_priority(page, about.eviction_priority);
  return found;
}

// Fresh memory: fills the page, if the program has it, and nobody else is at work on it. Whoever unmaps it first takes
// it out of the map of addresses, so under that map's lock it stays the program's.
bool far_pager::fill_expected(page_id page, bool write) noexcept {
  const platform::runtime_section section;
  const bool done = addresses_.while_in_use(page, [&](const mapping_traits& traits) {
    if (traits.foreign || traits.fenced || (traits.protection & (write ? PROT_WRITE : PROT_READ)) == 0) return false;
    engine::stream_table& streams = on_fiber() ? chosen_.fibers->streams() : hint_streams;
    return engine_->fill_with_zeros(streams, page, write) == engine::outcome::resolved;
  });
  if (done) engine_->note_hinted_miss();
  return done;
}

void far_pager::bring_expected(page_id page, const hint& about) noexcept {
  engine_->note_hinted_miss();
  if (on_fiber()) {
    resolve_on_fiber(page, about.write, miss_waiter::place::call, demand::hint);
  } else {
    resolve_on_thread(page, about.write, demand::hint);
  }
  static_cast<void>(engine_->expect_use(page, about.write, about.sequential));  // may mark it
}

}  // namespace far::pager
