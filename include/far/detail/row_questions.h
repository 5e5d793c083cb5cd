// Questions about the rows of a far::dataframe whose keys the far tier reads itself, too
// (docs/decisions/0090-keys-on-servers.md).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "far/column.h"
#include "far/detail/column_statistics.h"
#include "far/detail/group_table.h"
#include "far/detail/pointer.h"
#include "far/detail/reduction.h"
#include "far/detail/sequence.h"
#include "far/vector.h"

namespace far::detail {

// About the numbers of one column. The rows are asked about some at a time; each question is about as many of them.
class row_questions {
 public:
  // Of `numbers` the type, the lowest and the highest number count; of `wanted` what is wanted of them.
  row_questions(const group_table::in_far_tier& groups, const column& of, const reduction& numbers,
                const keyed_rows& wanted)
      : columns_(groups.columns), numbers_(numbers), rows_(wanted) {
    if (groups.keys.empty()) return;
    if (wanted.wants_numbers()) columns_.push_back(&of);
    numbers_.kind = reduction_kind::of_rows;
    numbers_.groups = static_cast<std::uint8_t>(groups.groups);
    rows_.keys = static_cast<std::uint8_t>(groups.keys.size());
    std::copy(groups.keys.begin(), groups.keys.end(), rows_.key.begin());
    // As many as possible: an answer is as long for a few.
    for (rows_.rows = most_rows; rows_.rows > 0 && !is_question(question()); rows_.rows /= 2) {
    }
    if (rows_.buckets > 0 && rows_.rows > 0) choose_length();
  }

  // 0: the far tier is not asked.
  [[nodiscard]] std::size_t rows_of_question() const { return rows_.rows; }
  [[nodiscard]] std::size_t groups() const { return numbers_.groups; }
  // Of each group, if they are wanted.
  [[nodiscard]] std::size_t buckets() const { return rows_.buckets; }
  // Of all groups together, if they are listed: for how many different numbers there is room.
  [[nodiscard]] std::size_t listed() const { return rows_.listed; }
  void set_buckets_of(std::size_t group, const group_buckets& where) { rows_.buckets_of[group] = where; }

  // Of rows that are not a whole question, nothing is asked. `first` begins a question. An answer without room for its
  // list is none: its numbers are read, and with them the keys of their rows.
  void ask(const tag& in, std::size_t first, std::size_t rows) {
    first_ = first;
    asked_.assign(rows / rows_.rows, {});
    constexpr std::size_t together = 16;
    const reduction how = question();
    visit_on_fibers(in.home(), (asked_.size() + together - 1) / together, [&](std::size_t number) {
      const std::size_t begin = number * together;
      const std::size_t end = std::min(asked_.size(), begin + together);
      for (std::size_t i = begin; i < end; ++i) note_pages(first + i * rows_.rows, asked_[i].pages);
      ask_about_rows(in, how, std::span(asked_).subspan(begin, end - begin));
    });
    if (rows_.listed == 0) return;
    for (question_about_rows& one : asked_) one.is_answered = one.is_answered && lists_all(one.answer.data());
  }

  // Nothing is asked about these rows.
  void skip(std::size_t first) {
    first_ = first;
    asked_.clear();
  }

  // The one about this row; null if there is none.
  [[nodiscard]] const std::byte* answer_about(std::size_t row) const {
    if (rows_.rows == 0) return nullptr;
    const std::size_t number = (row - first_) / rows_.rows;
    return number < asked_.size() && asked_[number].is_answered ? asked_[number].answer.data() : nullptr;
  }
  // The first row that the answer about this one is not about, or that there is an answer about if there is none.
  [[nodiscard]] std::size_t next_after(std::size_t row, std::size_t end) const {
    if (answer_about(row) != nullptr) return std::min(end, row + rows_.rows);
    while (row < end && answer_about(row) == nullptr) row += std::max<std::size_t>(rows_.rows, 1);
    return std::min(row, end);
  }

  // What an answer says of a group (reduction_kind); what was not wanted is zeros.
  template <typename T>
  struct group_answer {
    using sum_type = std::conditional_t<std::is_floating_point_v<T>, double,
                                        std::conditional_t<sizeof(T) == 8, wide_integer, std::int64_t>>;
    sum_type sum = 0;
    T least{};
    T greatest{};
    std::uint16_t rows = 0;
    std::uint16_t count = 0;
    const std::byte* places = nullptr;  // if buckets are wanted: how many lie below them, and in each
  };
  template <typename T>
  [[nodiscard]] group_answer<T> of_group(const std::byte* answer, std::size_t group) const {
    group_answer<T> found;
    const auto take = [&](bool is_wanted, auto& value) {
      if (!is_wanted) return;
      std::memcpy(&value, answer + group * sizeof value, sizeof value);
      answer += groups() * sizeof value;
    };
    take(rows_.wants_sums, found.sum);
    take(rows_.wants_least, found.least);
    take(rows_.wants_greatest, found.greatest);
    take(true, found.rows);
    take(rows_.wants_counts, found.count);
    found.places = answer + group * (buckets() + 1) * sizeof(std::uint16_t);
    return found;
  }

  // The numbers that an answer lists of the only bucket of a group, and how often each occurs.
  struct group_list {
    std::size_t different = 0;
    const std::byte* numbers = nullptr;
    const std::byte* times = nullptr;
    bool is_too_long = false;  // there is no room for them
  };
  // `found`: of_group().
  template <typename T>
  [[nodiscard]] group_list list_of_group(const group_answer<T>& found, std::size_t group) const {
    const std::byte* const places = found.places - group * 2 * sizeof(std::uint16_t);
    const std::byte* const different = places + groups() * 2 * sizeof(std::uint16_t);
    const std::byte* const numbers = different + groups() * sizeof(std::uint16_t);
    const auto count_at = [](const std::byte* counts, std::size_t i) -> std::size_t {
      std::uint16_t count = 0;
      std::memcpy(&count, counts + i * sizeof count, sizeof count);
      return count;
    };
    std::size_t before = 0;
    for (std::size_t i = 0; i < group; ++i) before += count_at(different, i);
    const std::size_t count = count_at(different, group);
    return {.different = count,
            .numbers = numbers + before * sizeof(T),
            .times = numbers + rows_.listed * sizeof(T) + before * sizeof(std::uint16_t),
            .is_too_long = count == 0 && count_at(found.places, 1) > 0};
  }

 private:
  // Whether there is room for the numbers of all groups.
  [[nodiscard]] bool lists_all(const std::byte* answer) const {
    using any = std::int8_t;  // nothing of the type of the numbers is in front of a list
    for (std::size_t group = 0; group < groups(); ++group) {
      if (list_of_group(of_group<any>(answer, group), group).is_too_long) return false;
    }
    return true;
  }
  // As many buckets, or listed numbers, as fit into an answer of a 100th of its pages. With few, it takes many
  // questions to find anything.
  void choose_length() {
    constexpr std::uint8_t fewest = 8;
    std::uint8_t& length = rows_.listed > 0 ? rows_.listed : rows_.buckets;
    const std::size_t most_bytes = bytes_of_pages() / 100;
    const auto fits = [&] { return is_question(question()) && bytes_of_answer(question()) <= most_bytes; };
    for (; length < most_buckets_of_rows && fits(); ++length) {
    }
    if (!fits()) --length;
    if (length < fewest) rows_.rows = 0;
  }
  // Of a question.
  [[nodiscard]] std::size_t bytes_of_pages() const {
    std::size_t bytes = 0;
    for (const column* const one : columns_) {
      bytes += one->visit([&]<typename T>(const vector<T>&) { return rows_.rows * sizeof(T); });
    }
    return bytes;
  }
  [[nodiscard]] reduction question() const {
    reduction how = numbers_;
    how.rows = &rows_;
    return how;
  }
  void note_pages(std::size_t first, std::array<const std::byte*, most_row_pages>& pages) const {
    std::size_t count = 0;
    for (const column* const one : columns_) {
      one->visit([&]<typename T>(const vector<T>& all) {
        constexpr std::size_t on_a_page = page_bytes_of_chunks / sizeof(T);
        for (std::size_t row = first; row < first + rows_.rows; row += on_a_page) pages[count++] = all.page_of(row);
      });
    }
  }

  std::vector<const column*> columns_;
  reduction numbers_;
  keyed_rows rows_;
  std::size_t first_ = 0;
  std::vector<question_about_rows> asked_;
};

}  // namespace far::detail
