// What questions about the columns of a far::dataframe cost, as the questions themselves show, and where the next one
// is answered (docs/decisions/0080-rent-or-buy.md).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "far/runtime.h"
#include "far/summary.h"

namespace far::detail {

// Pages that a question was about in the far tier, pages that it fetched, and its time.
struct question_cost {
  std::uint64_t asked_pages = 0;
  std::uint64_t fetched_pages = 0;
  double elapsed_ns = 0;
};

// Of a question that begins now. Whatever else the runtime does meanwhile counts, too; averages hide it.
class question_meter {
 public:
  explicit question_meter(const runtime& of) : of_(of), before_(of.statistics()) {}

  [[nodiscard]] std::size_t budget_bytes() const { return before_.budget_bytes; }
  [[nodiscard]] question_cost finish() const {
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - began_;
    const runtime_statistics now = of_.statistics();
    return {now.reduced_pages - before_.reduced_pages, now.fetched_pages - before_.fetched_pages, elapsed.count()};
  }

 private:
  const runtime& of_;
  runtime_statistics before_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// What a page costs, of all columns of a frame. Any number of threads; a sample may get lost.
class page_costs {
 public:
  // Nanoseconds, for a page that the far tier is asked about once, and for one that is fetched and makes another leave.
  // Until there are samples: as over a link of 25 Gb/s.
  [[nodiscard]] double asked_ns() const { return asked_ns_.load(std::memory_order_relaxed); }
  [[nodiscard]] double fetched_ns() const { return fetched_ns_.load(std::memory_order_relaxed); }
  // Whether the far tier answers questions; one that does not has its pages fetched one by one.
  [[nodiscard]] bool answers() const { return answers_.load(std::memory_order_relaxed); }

  void learn(work where, const question_cost& cost) {
    if (where == work::there) {
      if (cost.asked_pages >= fewest_pages)
        add_sample(asked_ns_, cost.elapsed_ns / static_cast<double>(cost.asked_pages));
      if (cost.asked_pages == 0 && cost.fetched_pages >= fewest_pages) answers_.store(false, std::memory_order_relaxed);
    } else if (cost.fetched_pages >= fewest_pages) {
      add_sample(fetched_ns_, cost.elapsed_ns / static_cast<double>(cost.fetched_pages));
    }
  }

 private:
  // Fewer cost what a round trip and the rest of the question cost.
  static constexpr std::uint64_t fewest_pages = 64;

  // A sample in which the processor was away for long counts little.
  static void add_sample(std::atomic<double>& average, double sample) {
    const double before = average.load(std::memory_order_relaxed);
    average.store(before + (std::min(sample, 4 * before) - before) / 4, std::memory_order_relaxed);
  }

  std::atomic<double> asked_ns_{600};
  std::atomic<double> fetched_ns_{2400};
  std::atomic<bool> answers_{true};
};

// Of questions that send the groups of the numbers along, and of all others.
struct frame_costs {
  page_costs plain;
  page_costs grouped;
};

// Where questions about one column are answered. A column that stays in local memory once it is there is a thing to
// rent or to buy: it is asked where it is until that would have cost as much as fetching it. So whatever questions
// come, they cost at most twice what the best choice had cost. A larger one is asked as long as that is the cheaper
// way.
class question_place {
 public:
  // For a question that goes over `pages` pages `passes` times. A few pages are fetched: that takes one wait, as asking
  // does.
  [[nodiscard]] work choose(const page_costs& costs, std::size_t pages, unsigned passes, bool stays) const {
    if (pages <= few_pages || !costs.answers()) return work::here;
    const double asking = static_cast<double>(pages) * passes * costs.asked_ns();
    const double fetching = static_cast<double>(pages) * costs.fetched_ns();
    if (!stays) return asking <= fetching * passes ? work::there : work::here;
    return spent_ns_.load(std::memory_order_relaxed) + asking < fetching ? work::there : work::here;
  }
  void learn(const page_costs& costs, work where, const question_cost& cost) {
    const double rent = static_cast<double>(cost.asked_pages) * costs.asked_ns();
    const double before = spent_ns_.load(std::memory_order_relaxed);
    spent_ns_.store(where == work::here ? 0 : before + rent, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t few_pages = 16;

  std::atomic<double> spent_ns_{0};  // on asking, since it was fetched
};

}  // namespace far::detail
