// What questions about the columns of a far::dataframe cost, as the questions themselves show, and where the next ones
// are answered (docs/decisions/0080-rent-or-buy.md, 0132-parts-of-questions.md).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>

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

[[nodiscard]] constexpr work other_than(work where) {
  return where == work::there ? work::here : work::there;
}

// Pages of a part of a question that are away.
struct part_pages {
  static constexpr std::size_t usual_fewest = 64;

  std::size_t away = 0;
  // With fewer, the part costs what a round trip costs: it teaches nothing, and is fetched.
  std::size_t fewest = usual_fewest;
  // So often each of them is asked about, unless it is fetched.
  unsigned times = 1;
};

// What a page that is away costs where it is asked about, and where it is fetched, in questions of one kind. A question
// goes over its pages in parts. Each part takes the cheaper way, as the parts before it have shown, and now and then
// the other one, to see whether it is cheaper by now: then what that costs more is at most a 32nd of the time of all
// parts, and what a part surprises with is saved up again before the next try. Any number of threads; a sample may get
// lost.
class part_costs {
 public:
  static constexpr double share_of_tries = 1.0 / 32;

  // Nanoseconds for a page that is asked about once, or fetched; nothing until two parts have told.
  [[nodiscard]] std::optional<double> page_ns(work where) const {
    const side& one = side_of(where);
    if (one.samples.load(std::memory_order_relaxed) < samples_at_first) return std::nullopt;
    return one.page_ns.load(std::memory_order_relaxed);
  }
  // The cheaper way for a page that would be asked about so often; nothing as long as one of them was not tried.
  [[nodiscard]] std::optional<work> better(unsigned times = 1) const {
    const std::optional<double> asked = page_ns(work::there);
    const std::optional<double> fetched = page_ns(work::here);
    if (!asked || !fetched) return std::nullopt;
    return *asked * times <= *fetched ? work::there : work::here;
  }

  // Where the next part is answered.
  [[nodiscard]] work choose(const part_pages& pages) const {
    if (pages.away < pages.fewest) return work::here;
    const std::optional<work> cheaper = better(pages.times);
    if (!cheaper) return page_ns(work::there) ? work::here : work::there;
    const double more_ns = expected_ns(other_than(*cheaper), pages) - expected_ns(*cheaper, pages);
    const bool is_try = parts_since_try_.load(std::memory_order_relaxed) >= parts_between_tries &&
                        saved_ns_.load(std::memory_order_relaxed) >= more_ns;
    return is_try ? other_than(*cheaper) : *cheaper;
  }
  // What the part has cost. `elapsed_ns`: for kinds that go over their pages several times, of all passes. `is_forced`:
  // there was no choice, so that the dearer way is no try.
  void learn(work where, const part_pages& pages, double elapsed_ns, bool is_forced = false) {
    if (pages.away < pages.fewest) return;
    const std::optional<work> cheaper = better(pages.times);
    const bool is_cheaper = where == cheaper;
    if (cheaper && (is_cheaper || !is_forced)) {
      // More than the other way would have cost, as far as is known: that was the price of having tried.
      const double more_ns = elapsed_ns - expected_ns(other_than(where), pages);
      double saved = saved_ns_.load(std::memory_order_relaxed);
      saved = is_cheaper ? saved + elapsed_ns * share_of_tries - std::max(0.0, more_ns) : saved - more_ns;
      // What is left after a try is not kept: tries do not come in a row.
      saved_ns_.store(is_cheaper ? saved : std::min(0.0, saved), std::memory_order_relaxed);
      parts_since_try_.store(is_cheaper ? parts_since_try_.load(std::memory_order_relaxed) + 1 : 0,
                             std::memory_order_relaxed);
    }
    add_sample(side_of(where), elapsed_ns / uses_of(where, pages));
  }

 private:
  static constexpr std::uint32_t samples_at_first = 2;
  static constexpr std::uint32_t parts_between_tries = 8;

  struct side {
    std::atomic<double> page_ns{0};
    std::atomic<std::uint32_t> samples{0};
  };

  // How often a page is fetched, or asked about.
  [[nodiscard]] static double uses_of(work where, const part_pages& pages) {
    return static_cast<double>(pages.away) * (where == work::there ? pages.times : 1);
  }
  // Requires: it is known.
  [[nodiscard]] double expected_ns(work where, const part_pages& pages) const {
    return *page_ns(where) * uses_of(where, pages);
  }
  // The processor may have been away during one of the first two; of the others, one in which it was away for long
  // counts as twice what was expected.
  static void add_sample(side& of, double sample) {
    const double before = of.page_ns.load(std::memory_order_relaxed);
    const std::uint32_t samples = of.samples.load(std::memory_order_relaxed);
    double after = sample;
    if (samples == 1) after = std::min(before, sample);
    if (samples > 1) after = (before + std::min(sample, 2 * before)) / 2;
    of.page_ns.store(after, std::memory_order_relaxed);
    if (samples < samples_at_first) of.samples.store(samples + 1, std::memory_order_relaxed);
  }
  [[nodiscard]] side& side_of(work where) { return sides_[where == work::there ? 0 : 1]; }
  [[nodiscard]] const side& side_of(work where) const { return sides_[where == work::there ? 0 : 1]; }

  std::array<side, 2> sides_;
  std::atomic<double> saved_ns_{0};  // for tries
  std::atomic<std::uint32_t> parts_since_try_{0};
};

// How often a question goes over its pages, of which only the first time is a part.
struct question_passes {
  unsigned there = 1;
  unsigned here = 1;
};

// A part of a question, from here to its end, unless an exception ends it.
class costly_part {
 public:
  // `forced`: the way it takes, if there is no choice.
  costly_part(part_costs& costs, const part_pages& pages, std::optional<work> forced = std::nullopt,
              const question_passes& passes = {})
      : costs_(costs),
        pages_(pages),
        is_forced_(forced.has_value()),
        where_(forced ? *forced : costs.choose(pages)),
        passes_(where_ == work::there ? passes.there : passes.here) {}
  costly_part(const costly_part&) = delete;
  costly_part& operator=(const costly_part&) = delete;
  ~costly_part() {
    if (!is_sample_ || std::uncaught_exceptions() > exceptions_before_) return;
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - began_;
    costs_.learn(where_, pages_, elapsed.count() * passes_, is_forced_);
  }

  [[nodiscard]] work where() const { return where_; }
  // Nothing was answered: what that took tells nothing of other parts.
  void forget() { is_sample_ = false; }

 private:
  part_costs& costs_;
  part_pages pages_;
  bool is_forced_;
  work where_;
  unsigned passes_;
  bool is_sample_ = true;
  int exceptions_before_ = std::uncaught_exceptions();
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// Kinds of questions, which cost differently. Of those about groups, one is a part of the next.
enum class question_kind : std::uint8_t {
  pages,    // each page has an answer of its own
  ranks,    // several passes over all pages
  keys,     // counts of groups: of their numbers nothing is read
  groups,   // sums and bounds of groups
  medians,  // of groups
};
inline constexpr std::size_t question_kinds = 5;

// Of all columns of a frame, which lie in one far tier.
class frame_costs {
 public:
  // Of a page of a part, in all passes of which that part is the first.
  [[nodiscard]] part_costs& of_parts(question_kind kind) { return of_parts_[static_cast<std::size_t>(kind)]; }
  // Of a page of a column that stays in local memory (question_place), in one pass.
  [[nodiscard]] part_costs& of_whole(question_kind kind) { return of_whole_[static_cast<std::size_t>(kind)]; }

 private:
  std::array<part_costs, question_kinds> of_parts_;
  std::array<part_costs, question_kinds> of_whole_;
};

// Where questions about one column are answered that stays in local memory once it is there. It is a thing to rent or
// to buy: it is asked where it is until that would have cost as much as fetching it. So whatever questions come, they
// cost at most twice what the best choice had cost, and a 32nd for tries.
class question_place {
 public:
  // For a question that goes over `pages` pages `passes` times. A few pages are fetched: that takes one wait, as asking
  // does.
  [[nodiscard]] work choose(const part_costs& costs, std::size_t pages, unsigned passes) const {
    if (pages <= few_pages) return work::here;
    // Now and then although it is dearer, to see whether it still is.
    const bool is_dearer = costs.better(passes) == work::here;
    if (is_dearer && costs.choose({.away = pages, .times = passes}) == work::there) return work::there;
    const double asking = static_cast<double>(pages) * passes * costs.page_ns(work::there).value_or(guessed_asked_ns);
    const double fetching = static_cast<double>(pages) * costs.page_ns(work::here).value_or(guessed_fetched_ns);
    return spent_ns_.load(std::memory_order_relaxed) + asking < fetching ? work::there : work::here;
  }
  // Both learn from a question, or a part of it. `passes`: as in choose().
  void learn(part_costs& costs, work where, const question_cost& cost, unsigned passes) {
    if (where == work::here) {
      // What is bought although asking once is cheaper is no try.
      costs.learn(where, {.away = cost.fetched_pages, .times = passes}, cost.elapsed_ns, true);
      return spent_ns_.store(0, std::memory_order_relaxed);
    }
    // Where nothing answers, asking costs what fetching does. That is a cost like others: it may be so only now.
    const std::uint64_t pages = cost.asked_pages > 0 ? cost.asked_pages : cost.fetched_pages;
    const std::size_t fewest = (part_pages::usual_fewest + passes - 1) / passes;
    costs.learn(where, {.away = pages / passes, .fewest = fewest, .times = passes}, cost.elapsed_ns);
    const double rent = static_cast<double>(pages) * costs.page_ns(work::there).value_or(guessed_asked_ns);
    spent_ns_.store(spent_ns_.load(std::memory_order_relaxed) + rent, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t few_pages = 16;
  // Until questions have shown more: as over a link of 25 Gb/s. The price is known once the first column was fetched.
  static constexpr double guessed_asked_ns = 600;
  static constexpr double guessed_fetched_ns = 2400;

  std::atomic<double> spent_ns_{0};  // on asking, since it was fetched
};

}  // namespace far::detail
