// Prefetch: recognising, for one thread, the streams in its misses, and how far ahead to fetch.
//
// After AIFM's per-thread prefetcher (OSDI'20, section 4.2): a window of recent misses, sequential and strided
// patterns, a prefetch depth sized from bandwidth times delay. A thread may follow several streams at once (a scan of
// many columns).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/residency.h"

namespace far::engine {

// Whether a page that is Remote comes whole when it is needed. Of others the objects come one by one, and nobody asks
// for the page.
[[nodiscard]] inline bool comes_as_page(page_word word) {
  return word.where() == state::remote && !word.object_path();
}

// The pages to fetch besides the missing one: `count` pages, `stride` pages apart, from `first` strides after the miss.
struct window {
  std::int64_t stride = 1;
  std::size_t count = 0;
  std::size_t stream = 0;  // which stream of the table it belongs to
  std::int64_t first = 1;
  std::optional<page_id> left_out = {};
  bool is_walk = true;  // so that they will be written to if the missing page is
};

// The evidence of one miss about earlier prefetches.
struct prefetch_feedback {
  std::size_t used_pages = 0;    // prefetched pages that the stream has now walked over
  std::size_t unused_pages = 0;  // prefetched pages of a stream that was given up
};

class read_ahead_state {
 public:
  // Notes a miss and returns the window to fetch with it; at most `largest_window` pages. A stream's window doubles
  // each time the stream walks over all of it; new streams start smaller while the thread's prefetches go unused.
  [[nodiscard]] window observe(const residency& pages, page_id miss, std::size_t largest_window,
                               prefetch_feedback* feedback);

  // How many pages of the window were really fetched: the others were here already, or there was no room for them.
  void note_fetched(const window& ahead, std::size_t pages) {
    if (ahead.count > 0) streams_[ahead.stream].fetched_pages = pages;
  }

 private:
  static constexpr std::size_t maximum_streams = 8;
  static constexpr std::size_t recent_misses = 8;
  static constexpr std::int64_t largest_stride = 64;
  static constexpr std::size_t first_window = 4;

  struct stream {
    page_id next = 0;         // the first page not fetched yet: where the next miss is expected
    std::int64_t stride = 0;  // 0: unused entry
    std::size_t window_pages = 0;
    std::size_t fetched_pages = 0;  // of the window
    std::uint64_t last_use = 0;
  };

  [[nodiscard]] stream* find(const residency& pages, page_id miss);
  [[nodiscard]] std::int64_t detect_stride(page_id miss) const;
  stream& replace(prefetch_feedback* feedback);
  void learn(std::size_t used, std::size_t unused);

  std::array<stream, maximum_streams> streams_{};
  std::array<page_id, recent_misses> recent_{};
  std::size_t recent_count_ = 0;
  std::uint64_t misses_ = 0;
  // Share of prefetched pages that were used, in 1/256, as a moving average. Starts hopeful.
  unsigned usefulness_ = 192;
};

// The history of the pages right before one, touched by any thread: a thread may follow more streams than its table
// holds, and threads may hand them on. At most `most` pages are read.

// How many pages right before an Untouched one have been filled: a buffer that is written from its start.
[[nodiscard]] std::size_t filled_before(const residency& pages, page_id page, std::size_t most);

// The same of the pages right after it: a buffer that is written from its end.
[[nodiscard]] std::size_t filled_after(const residency& pages, page_id page, std::size_t most);

// How many pages right before a Remote one left in the same epoch and have come back, or are on their way: a walk over
// pages that were evicted together. Tasks that share a walk ask for its pages at nearly the same time.
[[nodiscard]] std::size_t returned_before(const residency& pages, page_id page, std::size_t most);

}  // namespace far::engine
