#include "engine/read_ahead.h"

#include <algorithm>

namespace far::engine {
namespace {

// Whether a thread can have walked over `steps` pages without a miss. Objects that come back one by one miss no page.
bool walked_over(const residency& pages, page_id first, std::int64_t stride, std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step) {
    if (comes_as_page(pages.load(first + static_cast<page_id>(stride * step)))) return false;
  }
  return true;
}

}  // namespace

// A known stream doubles its window at each miss, as readahead of files does. The next miss is expected one stride
// behind what is fetched now, so a thread that keeps up misses once a window.
window read_ahead_state::observe(const residency& pages, page_id miss, std::size_t largest_window,
                                 prefetch_feedback* feedback) {
  ++misses_;
  const auto remember = [this, miss] {
    recent_[recent_count_ % recent_misses] = miss;
    ++recent_count_;
  };

  if (stream* const followed = find(pages, miss)) {
    feedback->used_pages = followed->fetched_pages;
    learn(followed->fetched_pages, 0);
    followed->window_pages = std::min(std::max(followed->window_pages * 2, first_window), largest_window);
    followed->last_use = misses_;
    followed->next =
        miss + static_cast<page_id>(followed->stride * static_cast<std::int64_t>(followed->window_pages + 1));
    followed->fetched_pages = 0;
    remember();
    return {followed->stride, followed->window_pages, static_cast<std::size_t>(followed - streams_.data())};
  }

  const std::int64_t stride = detect_stride(miss);
  remember();
  if (stride == 0) return {};
  stream& fresh = replace(feedback);
  // A thread whose prefetches went unused must first show a stream that continues.
  const std::size_t start = usefulness_ >= 128 ? first_window : (usefulness_ >= 32 ? 1 : 0);
  fresh.stride = stride;
  fresh.window_pages = std::min(start, largest_window);
  fresh.last_use = misses_;
  fresh.next = miss + static_cast<page_id>(stride * static_cast<std::int64_t>(fresh.window_pages + 1));
  return {stride, fresh.window_pages, static_cast<std::size_t>(&fresh - streams_.data())};
}

// A miss continues a stream when it is where the fetched part ends, or a little beyond, if no page before it is Remote:
// a thread that walked there would have missed that one first. Without that condition, random misses near the end of
// one of eight streams would often continue it.
read_ahead_state::stream* read_ahead_state::find(const residency& pages, page_id miss) {
  for (stream& candidate : streams_) {
    if (candidate.stride == 0) continue;
    const auto distance = static_cast<std::int64_t>(miss - candidate.next);
    const std::int64_t tolerated = static_cast<std::int64_t>(std::max(candidate.window_pages, first_window));
    if (distance % candidate.stride != 0) continue;
    const std::int64_t steps = distance / candidate.stride;
    if (steps >= 0 && steps <= tolerated && walked_over(pages, candidate.next, candidate.stride, steps)) {
      return &candidate;
    }
  }
  return nullptr;
}

// Neighbouring misses make a stream at once; a wider stride must be seen twice, because two unrelated misses are often
// close together.
std::int64_t read_ahead_state::detect_stride(page_id miss) const {
  const std::size_t known = std::min(recent_count_, recent_misses);
  const auto seen = [this, known](page_id page) {
    return std::find(recent_.begin(), recent_.begin() + static_cast<std::ptrdiff_t>(known), page) !=
           recent_.begin() + static_cast<std::ptrdiff_t>(known);
  };
  if (seen(miss - 1)) return 1;
  if (seen(miss + 1)) return -1;
  for (std::size_t i = 0; i < known; ++i) {
    const auto stride = static_cast<std::int64_t>(miss - recent_[i]);
    if (stride == 0 || stride > largest_stride || stride < -largest_stride) continue;
    if (seen(miss - static_cast<page_id>(2 * stride))) return stride;
  }
  return 0;
}

read_ahead_state::stream& read_ahead_state::replace(prefetch_feedback* feedback) {
  stream* oldest = &streams_[0];
  for (stream& candidate : streams_) {
    if (candidate.last_use < oldest->last_use) oldest = &candidate;
  }
  if (oldest->stride != 0 && oldest->fetched_pages > 0) {
    feedback->unused_pages = oldest->fetched_pages;
    learn(0, oldest->fetched_pages);
  }
  *oldest = {};
  return *oldest;
}

void read_ahead_state::learn(std::size_t used, std::size_t unused) {
  const std::size_t all = used + unused;
  if (all == 0) return;
  const auto observed = static_cast<unsigned>(used * 256 / all);
  usefulness_ = (usefulness_ * 7 + observed) / 8;
}

namespace {

bool is_filled(const residency& pages, page_id page) {
  const state where = pages.load(page).where();
  return where != state::untouched && where != state::foreign && where != state::lost;
}

}  // namespace

std::size_t filled_before(const residency& pages, page_id page, std::size_t most) {
  std::size_t run = 0;
  while (run < most && run < page && is_filled(pages, page - 1 - run)) ++run;
  return run;
}

std::size_t filled_after(const residency& pages, page_id page, std::size_t most) {
  std::size_t run = 0;
  while (run < most && page + 1 + run < pages.pages() && is_filled(pages, page + 1 + run)) ++run;
  return run;
}

std::size_t returned_before(const residency& pages, page_id page, std::size_t most) {
  const unsigned epoch = pages.load(page).epoch();
  std::size_t run = 0;
  for (; run < most && run < page; ++run) {
    const page_word before = pages.load(page - 1 - run);
    const bool returns = before.where() == state::fetching || (before.where() == state::resident && before.fetched());
    if (!returns || before.epoch() != epoch) break;
  }
  return run;
}

}  // namespace far::engine
