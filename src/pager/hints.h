// The runtime's side of far/hint.h: where hints look, and what they do when there is something to do.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "far/hint.h"

namespace far::pager {

class pager;

// What a hint calls that finds something to do, as in far_hint_view.
using hint_entry = decltype(far_hint_view::miss);
void take_hint(const void* address, std::size_t size, std::uint64_t packed_options, far_hint_site* site);

// From now on hints of the whole process are about this pager's far heap, unless they are about another's already.
// `entry`: take_hint(), or a function of a door's own that calls it.
void serve_hints(pager& by, hint_entry entry = take_hint);
// Before the pager ends. Requires: no thread is in a hint about its far heap.
void stop_serving_hints(const pager& by);

// What far_hint_find_view() returns wherever a door defines it: from the program's start on, empty while nobody serves.
[[nodiscard]] const far_hint_view& hint_view() noexcept;

// A line with a hint that has reached the runtime. Aligned: lines that are counted at once do not disturb each other.
struct alignas(64) hint_site {
  static constexpr std::size_t longest_file = 239;

  std::atomic<std::uint64_t> calls{0};   // the first use of a page since the evictor looked at it, mostly
  std::atomic<std::uint64_t> misses{0};  // of them, those that found something to fetch, or to make writable
  std::atomic<unsigned> line{0};         // set last; 0: not in use
  char file[longest_file + 1] = {};      // its end, if it is longer
};

// The lines so far. What lies behind the first thousand shares one entry.
[[nodiscard]] std::span<const hint_site> hint_sites() noexcept;

}  // namespace far::pager
