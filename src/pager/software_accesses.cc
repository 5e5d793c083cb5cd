#include "pager/software_accesses.h"

#include <sys/mman.h>

#include <algorithm>
#include <optional>

#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"

namespace far::pager {
bool software_accesses::fetch(const std::byte* address, std::size_t bytes, bool write, engine::demand cause) {
  if (bytes == 0) return true;
  const page_id first = heap_.page_at(address);
  const page_id last = heap_.page_at(address + (bytes - 1));
  if (last > first) {
    // The loop below waits for each of the pages.
    static_cast<void>(prefetch_pages({first, static_cast<std::size_t>(last - first + 1)}));
  }
  for (page_id page = first; page <= last; ++page) {
    if (engine_.view().accessible(page, write)) continue;
    std::optional<platform::signal_shield> shield;
    if (!host_.on_fiber()) shield.emplace();  // a worker's signals are blocked already
    if (!misses_.resolve({.page = page, .write = write, .cause = cause}, miss_waiter::place::call) && page == first)
      return false;
  }
  return true;
}

bool software_accesses::expect_use(const std::byte* address, std::size_t bytes, const engine::hint& about) noexcept {
  const page_id first = heap_.page_at(address);
  const auto offset = static_cast<std::uint64_t>(address - heap_.base());
  const std::uint64_t end = offset + std::min<std::uint64_t>(std::max<std::size_t>(bytes, 1), heap_.bytes() - offset);
  if (about.overwrite) return overwrite(offset, end, about.eviction_priority);
  const page_id last = (end - 1) >> page_shift;
  const engine::hinted_path::plan chosen = hinted_.look(first, last, about);
  if (chosen.empty()) return chosen.has_filled;
  std::optional<platform::runtime_section> section;
  if (!host_.on_fiber()) section.emplace();
  return hinted_.follow(chosen, about) || chosen.has_filled;
}

// A handler of the program's for writes to protected memory must find what was there.
bool software_accesses::is_all_writable(page_range range) const noexcept {
  for (page_id page = range.first; page < range.end();) {
    const std::optional<address_map::part> holder = addresses_.find(page);
    if (!holder || holder->traits.foreign || !holder->traits.is_writable()) return false;
    page = holder->range.end();
  }
  return true;
}

// Of the bytes of the heap from `offset` to `end`, the pages that lie in between as a whole.
bool software_accesses::overwrite(std::uint64_t offset, std::uint64_t end, unsigned eviction_priority) noexcept {
  const page_id first = (offset + page_bytes - 1) >> page_shift;
  const page_id behind = end >> page_shift;
  if (behind <= first) return false;
  const page_range whole{first, static_cast<std::size_t>(behind - first)};
  if (hinted_.from_first_remote(whole).count == 0) return false;
  std::optional<platform::runtime_section> section;
  if (!host_.on_fiber()) section.emplace();
  return is_all_writable(whole) && hinted_.bring_empty(whole, eviction_priority);
}

void software_accesses::prefetch(const std::byte* address, std::size_t bytes) {
  if (bytes == 0) return;
  const page_id first = heap_.page_at(address);
  const page_id last = heap_.page_at(address + (bytes - 1));
  if (prefetch_pages({first, static_cast<std::size_t>(last - first + 1)})) {
    engine::look_after_transfers(engine_, host_);
  }
}

bool software_accesses::prefetch_pages(page_range range) noexcept {
  range = hinted_.from_first_remote(range);
  if (range.count == 0) return false;
  std::optional<platform::runtime_section> section;
  if (!host_.on_fiber()) section.emplace();
  return hinted_.prefetch(range, nullptr);
}

// An unmapping takes the page out of the map of addresses first, so under that map's lock it stays the program's.
bool software_accesses::fill(page_id page, bool write) noexcept {
  const platform::runtime_section section;
  const bool done = addresses_.while_in_use(page, [&](const mapping_traits& traits) {
    if (traits.foreign || traits.fenced || (traits.protection & (write ? PROT_WRITE : PROT_READ)) == 0) return false;
    return engine_.misses().fill_with_zeros(page, write) == engine::outcome::resolved;
  });
  if (done) engine_.count().hinted_misses.add();
  return done;
}

void software_accesses::bring(engine::wanted_page wanted) noexcept {
  static_cast<void>(misses_.resolve(wanted, miss_waiter::place::call));  // an access will find out
}

}  // namespace far::pager
