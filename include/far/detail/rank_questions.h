// Questions about how many numbers of a container lie in each of some buckets, each about many of its pages
// (docs/decisions/0118-medians-on-servers.md).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "far/detail/chunk.h"
#include "far/detail/far_medians.h"
#include "far/detail/pointer.h"
#include "far/detail/reduction.h"
#include "far/detail/sequence.h"
#include "far/summary.h"

namespace far::detail {

template <typename Numbers>
class rank_questions {
 public:
  using T = typename Numbers::value_type;

  // Of the numbers of the interval. Requires: it lasts as long.
  rank_questions(const Numbers& all, const interval<T>& within) : all_(all), within_(within) {
    rows_.rows = static_cast<std::uint32_t>(
        std::min<std::size_t>(most_rows, most_row_pages_without_buckets * page_bytes_of_chunks / sizeof(T)));
    rows_.wants_least = rows_.wants_greatest = far_medians<T>::has_bounds;
    rows_.wants_counts = true;
    rows_.buckets = most_buckets_of_rows;
  }

  // The numbers with these ranks. Nothing if there are few pages, or less than half of the questions are answered.
  [[nodiscard]] std::optional<std::pair<T, T>> find(const summary<T>& found, std::uint64_t first, std::uint64_t last) {
    if (all_.size() < fewest_questions * rows_.rows) return std::nullopt;
    far_medians<T> medians(found, rows_.buckets);
    medians.look_for(0, first, last);
    do {
      rows_.buckets_of[0] = medians.buckets_of(0);
      if (!make_pass(medians)) return std::nullopt;
    } while (medians.next());
    return medians.found_in(0);
  }

 private:
  static constexpr std::size_t fewest_questions = 4;
  static constexpr std::size_t together = 16;

  [[nodiscard]] reduction question() const {
    return {.type = number_type_of<T>(),
            .lowest = bits_of(within_.lowest),
            .highest = bits_of(within_.highest),
            .kind = reduction_kind::of_rows,
            .groups = 1,
            .rows = &rows_};
  }

  // Returns whether enough was answered; otherwise nothing more is read.
  [[nodiscard]] bool make_pass(far_medians<T>& medians) {
    constexpr std::size_t questions_at_a_time = 32 * together;
    for (std::size_t at = 0; at < all_.size(); at += asked_.size() * rows_.rows) {
      asked_.assign(std::min(questions_at_a_time, (all_.size() - at + rows_.rows - 1) / rows_.rows), {});
      ask(at);
      const auto answered =
          static_cast<std::size_t>(std::ranges::count(asked_, true, &question_about_rows::is_answered));
      if (answered < asked_.size() / 2) return false;
      for (std::size_t i = 0; i < asked_.size(); ++i) {
        asked_[i].is_answered ? add_answer(asked_[i].answer.data(), medians) : add_here(at + i * rows_.rows, medians);
      }
    }
    return true;
  }
  // Those that are no whole question have no pages, so nobody answers about them.
  void ask(std::size_t first) {
    const reduction how = question();
    visit_on_fibers(all_.home().home(), (asked_.size() + together - 1) / together, [&](std::size_t number) {
      const std::size_t begin = number * together;
      const std::size_t end = std::min(asked_.size(), begin + together);
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t row = first + i * rows_.rows;
        constexpr std::size_t on_a_page = page_bytes_of_chunks / sizeof(T);
        for (std::size_t page = 0; row + rows_.rows <= all_.size() && page * on_a_page < rows_.rows; ++page) {
          asked_[i].pages[page] = all_.page_of(row + page * on_a_page);
        }
      }
      ask_about_rows(all_.home(), how, std::span(asked_).subspan(begin, end - begin));
    });
  }
  void add_answer(const std::byte* answer, far_medians<T>& medians) const {
    T least{};
    T greatest{};
    std::uint16_t rows = 0;
    std::uint16_t count = 0;
    const auto take = [&](auto& value) {
      std::memcpy(&value, answer, sizeof value);
      answer += sizeof value;
    };
    if (far_medians<T>::has_bounds) take(least);
    if (far_medians<T>::has_bounds) take(greatest);
    take(rows);
    take(count);
    if (count > 0) medians.add(0, count, least, greatest, answer);
  }
  void add_here(std::size_t first, far_medians<T>& medians) {
    numbers_.resize(std::min<std::size_t>(rows_.rows, all_.size() - first));
    groups_.resize(numbers_.size());
    all_.read(first, std::span<T>(numbers_), non_temporal);
    medians.add(groups_, numbers_, within_, ~std::uint32_t{0});
  }

  const Numbers& all_;
  interval<T> within_;
  keyed_rows rows_;
  std::vector<question_about_rows> asked_;
  std::vector<T> numbers_;
  std::vector<std::uint32_t> groups_;  // all are in the first
};

}  // namespace far::detail
