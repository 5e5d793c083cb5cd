// Questions about all numbers of a container, in no order: each is about many pages that lie in one server
// (docs/decisions/0118-medians-on-servers.md).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "far/detail/chunk.h"
#include "far/detail/pointer.h"
#include "far/detail/question_costs.h"
#include "far/detail/reduction.h"
#include "far/detail/sequence.h"
#include "far/detail/visitor.h"
#include "far/summary.h"

namespace far::detail {

// Whose pages can be asked about so.
template <typename Numbers>
concept has_pages = requires(const Numbers& all) { all.page_of(std::size_t{0}); };

// An answer about rows without keys (reduction_kind::of_rows).
template <reducible T>
struct unordered_answer {
  T least{};
  T greatest{};
  std::uint16_t count = 0;
  const std::byte* places = nullptr;  // how many numbers lie below the buckets, and in each
  // If they are listed.
  std::uint16_t different = 0;
  const std::byte* numbers = nullptr;
  const std::byte* times = nullptr;

  unordered_answer(const keyed_rows& asked, const std::byte* answer) {
    const auto take = [&](bool is_wanted, auto& value) {
      if (!is_wanted) return;
      std::memcpy(&value, answer, sizeof value);
      answer += sizeof value;
    };
    std::uint16_t rows = 0;
    take(asked.wants_least, least);
    take(asked.wants_greatest, greatest);
    take(true, rows);
    take(asked.wants_counts, count);
    places = answer;
    answer += (asked.buckets + std::size_t{1}) * sizeof(std::uint16_t);
    take(asked.listed > 0, different);
    numbers = answer;
    times = numbers + asked.listed * sizeof(T);
  }
  // 0: below the buckets.
  [[nodiscard]] std::uint16_t at_place(std::size_t place) const { return value_at<std::uint16_t>(places, place); }
  [[nodiscard]] T number_at(std::size_t i) const { return value_at<T>(numbers, i); }
  [[nodiscard]] std::uint64_t times_at(std::size_t i) const { return value_at<std::uint16_t>(times, i); }
  // There was no room to list the numbers of the bucket.
  [[nodiscard]] bool is_too_long() const { return different == 0 && at_place(1) > 0; }

 private:
  template <typename Value>
  [[nodiscard]] static Value value_at(const std::byte* values, std::size_t i) {
    Value value{};
    std::memcpy(&value, values + i * sizeof value, sizeof value);
    return value;
  }
};

// Pages that are here are read here, and so is what nobody answers.
template <typename Numbers>
class unordered_questions {
 public:
  using T = typename Numbers::value_type;

  // About the numbers of the interval. `costs`: if not null, they choose for some pages at a time whether these are
  // asked about, or fetched, and learn from it. Requires: `all` lasts as long.
  unordered_questions(const Numbers& all, const interval<T>& within, part_costs* costs)
      : all_(all), within_(within), costs_(costs) {}

  // With fewer pages, it is not worth it.
  [[nodiscard]] bool has_many() const {
    return all_.size() >= 2 * most_pages * on_a_page && all_.page_of(0) != nullptr;
  }
  // About so many, if all are asked about.
  [[nodiscard]] std::uint64_t questions() const { return all_.size() / (most_pages * on_a_page) + 1; }

  // Asks all of them. Calls use(answer) for those that are answered; what it returns says whether the answer is enough,
  // otherwise its numbers are read. Calls use_numbers(numbers) for all others. When less than half of the questions are
  // answered, or many answers are not enough, it asks no more: it returns false, unless it has fetched as much as is
  // left. Then reading the rest costs no more than beginning again. Requires: `asked` has buckets, and neither keys nor
  // rows.
  template <typename Use>
  [[nodiscard]] bool ask(keyed_rows asked, const Use& use, const visitor<std::span<const T>>& use_numbers) {
    std::size_t questions = 0;
    std::size_t answered = 0;
    std::size_t fetched_pages = 0;
    bool gave_up = false;
    // The first ones tell whether it is worth it.
    for (std::size_t first = 0, end = 0, window = 1024; first < all_.size(); first = end) {
      end = std::min(all_.size(), first + window * on_a_page);
      if (costs_ == nullptr) window = 8192;
      unanswered_.clear();
      find_pages(first, end);
      std::optional<costly_part> part;
      if (costs_ != nullptr) {
        part.emplace(*costs_, part_pages{away_.size()}, gave_up ? std::optional(work::here) : std::nullopt);
      }
      if (part && part->where() == work::here) {
        fetched_pages += away_.size();
        read_all(first, end, use_numbers);
        continue;
      }
      for (std::size_t pages = most_pages; pages > 0; pages /= 2) {
        asked.rows = static_cast<std::uint32_t>(pages * on_a_page);
        take_questions(pages);
        ask_all(asked);
        for (const question_about_rows& one : asked_) {
          const bool is_enough = one.is_answered && use(unordered_answer<T>(asked, one.answer.data()));
          answered += is_enough ? 1 : 0;
          if (!is_enough) unanswered_.insert(unanswered_.end(), &one.pages[0], &one.pages[0] + pages);
        }
        questions += asked_.size();
      }
      if (answered < questions / 2) {
        if (part) part->forget();
        if (fetched_pages < (all_.size() - first) / on_a_page) return false;
        gave_up = true;
      }
      read_unanswered(first, end, use_numbers);
    }
    return true;
  }

 private:
  static constexpr std::size_t on_a_page = page_bytes_of_chunks / sizeof(T);
  static constexpr std::size_t most_pages = std::min(most_row_pages, most_rows / on_a_page);
  static_assert(std::has_single_bit(most_pages));

  // Those that are remote, by server.
  void find_pages(std::size_t first, std::size_t end) {
    pages_.clear();
    for (std::size_t at = first; at < end; at += on_a_page) {
      pages_.push_back(at + on_a_page <= all_.size() ? all_.page_of(at) : nullptr);
    }
    places_.resize(pages_.size());
    note_places(all_.home(), pages_, places_);
    away_.clear();
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      if (places_[i] != 0) away_.emplace_back(places_[i], pages_[i]);
    }
    // By address within a server, so that a question is about neighbours. (Not by std::stable_sort(), of which Clang
    // warns in programs that include this.)
    std::sort(away_.begin(), away_.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : std::less<>()(a.second, b.second);
    });
  }
  // Those of so many pages in one server. Others are left for shorter ones.
  void take_questions(std::size_t pages) {
    asked_.clear();
    std::size_t left = 0;
    for (std::size_t i = 0, next = 0; i < away_.size(); i = next) {
      for (next = i + 1; next < away_.size() && away_[next].first == away_[i].first;) ++next;
      for (; next - i >= pages; i += pages) {
        question_about_rows& one = asked_.emplace_back();
        for (std::size_t page = 0; page < pages; ++page) one.pages[page] = away_[i + page].second;
      }
      for (; i < next; ++i) away_[left++] = away_[i];
    }
    away_.resize(left);
  }
  void ask_all(const keyed_rows& asked) {
    constexpr std::size_t together = 16;
    const reduction how{.type = number_type_of<T>(),
                        .lowest = bits_of(within_.lowest),
                        .highest = bits_of(within_.highest),
                        .kind = reduction_kind::of_rows,
                        .groups = 1,
                        .rows = &asked};
    if (asked_.empty() || !is_question(how)) return;
    visit_on_fibers(all_.home().home(), (asked_.size() + together - 1) / together, [&](std::size_t number) {
      const std::size_t begin = number * together;
      ask_about_rows(all_.home(), how, std::span(asked_).subspan(begin, std::min(together, asked_.size() - begin)));
    });
  }
  // They are fetched, some pages ahead of those that are read.
  void read_all(std::size_t first, std::size_t end, const visitor<std::span<const T>>& use) {
    constexpr std::size_t piece = 32 * on_a_page;
    all_.prefetch(first, std::min(piece, end - first));
    for (std::size_t at = first; at < end; at += numbers_.size()) {
      numbers_.resize(std::min(piece, end - at));
      const std::size_t next = at + numbers_.size();
      if (next < end) all_.prefetch(next, std::min(piece, end - next));
      all_.read(at, std::span<T>(numbers_));
      use(numbers_);
    }
  }
  // Numbers that are not here stay where they are, so that the next question may be about them.
  void read_unanswered(std::size_t first, std::size_t end, const visitor<std::span<const T>>& use) {
    std::sort(unanswered_.begin(), unanswered_.end());
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      if (places_[i] != 0 && !std::binary_search(unanswered_.begin(), unanswered_.end(), pages_[i])) continue;
      const std::size_t at = first + i * on_a_page;
      numbers_.resize(std::min(on_a_page, end - at));
      all_.read(at, std::span<T>(numbers_), non_temporal);
      use(numbers_);
    }
  }

  const Numbers& all_;
  interval<T> within_;
  part_costs* costs_;
  std::vector<const std::byte*> pages_;
  std::vector<std::uint64_t> places_;  // of these
  std::vector<std::pair<std::uint64_t, const std::byte*>> away_;
  std::vector<question_about_rows> asked_;
  std::vector<const std::byte*> unanswered_;
  std::vector<T> numbers_;
};

}  // namespace far::detail
