// The runtime's side of far/hint.h: the data that hints read, and the call that they make when a page is missing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "far/hint.h"

namespace far::pager {

class page_guard;

// The call of a hint that finds a missing page, as in far_hint_view.
using hint_entry = decltype(far_hint_view::miss);
void take_hint(const void* address, std::size_t size, std::uint64_t packed_options, far_hint_site* site);

// From now on the hints of the whole process concern this pager's far heap, unless another pager serves them already.
// `entry`: take_hint(), or a function of a door's own that calls it.
void serve_hints(page_guard& guard, hint_entry entry = take_hint);
// Before the pager ends. Requires: no thread is in a hint about its far heap.
void stop_serving_hints(const page_guard& guard);

// The result of far_hint_find_view() in every door that defines it. It exists from the program's start, and is empty
// while no pager serves hints.
[[nodiscard]] const far_hint_view& hint_view() noexcept;

// A line with a hint that has reached the runtime. Threads count apart: one counter that all of them bump at every page
// of a scan would be the dearest part of a hint that finds nothing to do.
struct hint_site {
  static constexpr std::size_t longest_file = 239;
  static constexpr std::size_t tallies = 4;

  struct alignas(64) tally {
    std::atomic<std::uint64_t> calls{0};   // the first use of a page since the evictor looked at it, mostly
    std::atomic<std::uint64_t> misses{0};  // of them, those that found something to fetch, or to make writable
  };

  [[nodiscard]] std::uint64_t calls() const noexcept { return sum(&tally::calls); }
  [[nodiscard]] std::uint64_t misses() const noexcept { return sum(&tally::misses); }

  std::array<tally, tallies> counted;
  std::atomic<unsigned> line{0};     // set last; 0: not in use
  char file[longest_file + 1] = {};  // its end, if it is longer

 private:
  [[nodiscard]] std::uint64_t sum(std::atomic<std::uint64_t> tally::* counter) const noexcept {
    std::uint64_t all = 0;
    for (const tally& one_thread : counted) all += (one_thread.*counter).load(std::memory_order_relaxed);
    return all;
  }
};

// The lines so far. All lines after the first thousand share one entry.
[[nodiscard]] std::span<const hint_site> hint_sites() noexcept;

}  // namespace far::pager
