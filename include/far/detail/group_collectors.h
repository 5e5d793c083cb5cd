// The aggregates of the columns of a far::dataframe, for all groups of its rows, wherever the columns are.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "far/column.h"
#include "far/dataframe.h"
#include "far/detail/column_statistics.h"
#include "far/detail/far_medians.h"
#include "far/detail/frame_walk.h"
#include "far/detail/group_medians.h"
#include "far/detail/group_table.h"
#include "far/detail/group_values.h"
#include "far/detail/question_costs.h"
#include "far/detail/reduction.h"
#include "far/detail/row_questions.h"
#include "far/scope.h"
#include "far/summary.h"
#include "far/vector.h"

namespace far::detail {

// The rows from `first` on belong to these groups, of which there are so many up to now. Groups that no collector needs
// are not given.
struct grouped_rows {
  std::size_t first = 0;
  std::span<const std::uint32_t> group_of;
  std::span<const std::uint8_t> short_group_of;  // the same; meaningless when the groups are more than most_groups
  std::size_t groups = 0;

  [[nodiscard]] grouped_rows part(std::size_t from, std::size_t end) const {
    const std::size_t at = from - first;
    return {from, group_of.subspan(at, end - from), short_group_of.subspan(at, end - from), groups};
  }
};

// The aggregates of one column, for all groups.
class group_collector {
 public:
  virtual ~group_collector() = default;
  virtual void want(aggregate what) = 0;
  // After the last want().
  virtual void begin(const group_table& groups) = 0;
  // Before add(), whether sample() is called with some rows, and its column is prefetched for it; with a few, if its
  // numbers had better stay where they are.
  enum class sample_size : std::uint8_t { none, few, many };
  [[nodiscard]] virtual sample_size wants_sample() const = 0;
  virtual void prefetch(std::size_t first, std::size_t rows) const = 0;
  virtual void sample(const grouped_rows& rows) = 0;
  virtual void end_sample() = 0;
  // Whether it leaves to others where the next rows are answered for, and how these choose.
  struct choice {
    question_kind kind;
    part_costs& costs;
    const column* numbers;        // that are read; null if there are none
    bool is_made = false;         // here: it only learns
    question_passes passes = {};  // over them, or so
  };
  [[nodiscard]] virtual std::optional<choice> leaves_choice() const = 0;
  // Before add() of as many rows: asks the far tier, which may have their keys, too. `where`: of what was left to
  // others. Returns whether anything was asked.
  [[nodiscard]] virtual bool ask(group_table& table, std::size_t first, std::size_t rows, work where) = 0;
  // Whether add() needs the groups of some of these rows.
  [[nodiscard]] virtual bool needs_groups(std::size_t first, std::size_t rows) const = 0;
  virtual void add(const grouped_rows& rows) = 0;
  // All rows have been added. Returns whether they have to be added again.
  [[nodiscard]] virtual bool next() = 0;
  // Requires: add() knew of as many groups.
  [[nodiscard]] virtual cell answer(std::size_t group, aggregate what) const = 0;
};

// Sums, counts and bounds of a few groups are questions about pages, wherever these are. More groups are collected row
// by row from pages that are here. Which of the two it is depends on the keys alone, so that floating point sums are
// the same, bit for bit, wherever the columns are. Medians are counted in several passes, of few groups where the pages
// are, otherwise in pages that are here; of many groups, all values are collected.
template <typename T>
class collector_of final : public group_collector {
 public:
  collector_of(const walk& how, const column& of, const vector<T>& numbers) : how_(how), of_(of), numbers_(numbers) {}

  void want(aggregate what) override {
    needs_counts_ |= what == aggregate::count;
    needs_sums_ |= what == aggregate::sum || what == aggregate::mean;
    needs_least_ |= what == aggregate::min;
    needs_greatest_ |= what == aggregate::max;
    needs_bounds_ = needs_least_ || needs_greatest_;
    needs_medians_ |= what == aggregate::median;
  }
  void begin(const group_table& groups) override {
    // Each row has a value: those of a group are as many as its rows.
    counts_rows_ = of_.known(numbers_).count() == numbers_.size();
    const interval<T> valid = of_.valid(numbers_);
    const reduction about{number_type_of<T>(), bits_of(valid.lowest), bits_of(valid.highest)};
    needs_others_ = needs_sums_ || needs_bounds_ || needs_counts_;
    questions_.emplace(groups.far_groups(), of_, about,
                       keyed_rows{.wants_sums = needs_sums_,
                                  .wants_least = needs_least_,
                                  .wants_greatest = needs_greatest_,
                                  .wants_counts = !counts_rows_});
    if (questions_->rows_of_question() == 0) questions_.reset();
    needs_sums_ |= needs_counts_ && !needs_bounds_ && !counts_rows_;
    const unsigned others = questions_ ? (needs_others_ ? 1 : 0) : (needs_sums_ ? 1 : 0) + (needs_bounds_ ? 1 : 0);
    passes_ = std::max(1U, others + (needs_medians_ ? passes_of_medians.there : 0));
    const std::optional<work> of_all = of_.place_groups(kind(needs_medians_), passes_);
    by_part_ = !of_all;
    where_ = of_all.value_or(work::there);
    if (!needs_medians_) return;
    if (where_ == work::there) ask_for_medians(groups, about);
    found_here_ = by_part_ && far_medians_ && are_found_here();
    if (found_here_) forget_far_medians();
    if (by_part_ || !far_medians_) medians_.emplace(of_.known(numbers_));
    if (!far_medians_) where_ = work::here;
  }

  [[nodiscard]] sample_size wants_sample() const override {
    return far_medians_ ? sample_size::few : medians_ ? sample_size::many : sample_size::none;
  }
  void prefetch(std::size_t first, std::size_t rows) const override { numbers_.prefetch(first, rows); }
  void sample(const grouped_rows& rows) override {
    if (far_medians_) {
      return for_copies(rows, [&](std::span<const std::uint32_t> groups, std::span<const T> numbers) {
        far_medians_->sample(groups, numbers, of_.valid(numbers_), group_table::none);
        if (medians_) medians_->sample(groups, numbers, of_.valid(numbers_));
      });
    }
    for_parts(rows, [&](std::span<const std::uint32_t> groups, std::span<const T> numbers) {
      medians_->sample(groups, numbers, of_.valid(numbers_));
    });
  }
  void end_sample() override {
    if (far_medians_) far_medians_->end_sample();
  }

  [[nodiscard]] std::optional<choice> leaves_choice() const override {
    if (!by_part_ || pass_ > 0 || (gives_up_ && !needs_others_)) return std::nullopt;
    // Nobody can be asked for these medians: whatever others choose, all of it is found here.
    if (needs_medians_ && !far_medians_ && !found_here_) return std::nullopt;
    const bool has_medians = needs_medians_ && !gives_up_;
    const question_kind of = kind(has_medians);
    choice left{of, of_.costs_of_parts(of), of == question_kind::keys ? nullptr : &of_};
    if (has_medians) {
      left.is_made = found_here_;
      left.passes = passes_of_medians;
    }
    return left;
  }
  [[nodiscard]] bool ask(group_table& table, std::size_t first, std::size_t rows, work where) override {
    where_of_part_ = is_choice() ? where : where_;
    if (first == 0) note_far_groups(table);
    if (is_choice() && far_medians_ && !gives_up_ && where == work::here) numbers_.prefetch(first, rows);
    const bool asks_others = pass_ == 0 && questions_ && needs_others_;
    const bool asks_medians = far_medians_ && !gives_up_;
    if (asks_others) ask_or_skip(*questions_, table, first, rows);
    if (asks_medians) ask_or_skip(questions_of_medians(), table, first, rows);
    return where_of_part_ == work::there && (asks_others || asks_medians);
  }
  [[nodiscard]] bool needs_groups(std::size_t first, std::size_t rows) const override {
    if (pass_ == 0 && needs_others_ && !(questions_ && has_answers(*questions_, first, rows))) return true;
    return needs_medians_ && !gives_up_ && !(far_medians_ && has_answers(questions_of_medians(), first, rows));
  }
  void add(const grouped_rows& rows) override {
    values_.resize(rows.groups);
    if (far_medians_ && !gives_up_) {
      add_to_far_medians(rows);
      // Between two parts, so that each has been counted as a whole, or not at all.
      const auto done = static_cast<double>(rows.first + rows.group_of.size());
      gives_up_ = is_choice() && are_cheaper_here(done / static_cast<double>(numbers_.size()));
    }
    if (pass_ > 0) return far_medians_ ? void() : add_row_by_row(rows, false);
    if (far_medians_ && !needs_others_) return;
    if (!questions_) return add_part(rows);
    visit_answers(*questions_, rows, [&](const std::byte* answer, const grouped_rows& part) {
      answer != nullptr ? add_answer(answer) : add_part(part);
    });
  }
  [[nodiscard]] bool next() override {
    ++pass_;
    if (!needs_medians_) return false;
    if (far_medians_) {
      return gives_up_ || (pass_ == 1 && has_few_answers()) ? give_up_far_medians() : next_of_far_medians();
    }
    // Another pass, in which all values are stored.
    return medians_ ? medians_->next() : pass_ == 1;
  }
  [[nodiscard]] cell answer(std::size_t group, aggregate what) const override {
    if (what != aggregate::median) return values_[group].answer(of_, what);
    if (!medians_ && !far_medians_) return values_[group].stored_median();
    const std::optional<double> found = far_medians_ ? far_medians_->of(group) : medians_->of(group);
    return found ? cell(*found) : cell(null);
  }

 private:
  // About so many, before it is known.
  static constexpr question_passes passes_of_medians =
      far_medians<T>::has_bounds ? question_passes{.there = 3, .here = 2} : question_passes{.there = 2, .here = 1};

  [[nodiscard]] question_kind kind(bool has_medians) const {
    if (has_medians) return question_kind::medians;
    return needs_sums_ || needs_bounds_ || !counts_rows_ ? question_kind::groups : question_kind::keys;
  }
  // Others have chosen where the rows are answered for.
  [[nodiscard]] bool is_choice() const { return by_part_ && pass_ == 0 && where_ == work::there; }
  // All medians that could be asked for, because it is cheaper, and not the time to see whether it still is.
  [[nodiscard]] bool are_found_here() const {
    constexpr std::size_t pages_of_part = (std::size_t{256} << 10) * (sizeof(T) + 1) / page_bytes_of_chunks;
    return are_cheaper_here(0) && of_.costs_of_parts(question_kind::medians).choose({pages_of_part}) == work::here;
  }
  // Of medians: all passes here, and what is left of those there when such a part of the first is over.
  [[nodiscard]] bool are_cheaper_here(double done) const {
    const part_costs& costs = of_.costs_of_parts(question_kind::medians);
    const std::optional<double> asked = costs.page_ns(work::there);
    const std::optional<double> fetched = costs.page_ns(work::here);
    return asked && fetched && *fetched < *asked * (1 - done / passes_of_medians.there);
  }
  void ask_for_medians(const group_table& groups, const reduction& about) {
    bucket_questions_.emplace(groups.far_groups(), of_, about,
                              keyed_rows{.wants_least = far_medians<T>::has_bounds,
                                         .wants_greatest = far_medians<T>::has_bounds,
                                         .wants_counts = !counts_rows_,
                                         .buckets = 2});
    if (bucket_questions_->rows_of_question() > 0) {
      far_medians_.emplace(of_.known(numbers_), bucket_questions_->buckets());
    } else {
      bucket_questions_.reset();
    }
    list_questions_.emplace(groups.far_groups(), of_, about,
                            keyed_rows{.wants_counts = !counts_rows_, .buckets = 1, .listed = 1});
    if (list_questions_->rows_of_question() == 0) list_questions_.reset();
  }
  void forget_far_medians() {
    far_medians_.reset();
    bucket_questions_.reset();
    list_questions_.reset();
  }
  // Of this pass.
  [[nodiscard]] row_questions& questions_of_medians() { return lists_ ? *list_questions_ : *bucket_questions_; }
  [[nodiscard]] const row_questions& questions_of_medians() const {
    return lists_ ? *list_questions_ : *bucket_questions_;
  }
  // The last pass lists what is left, if that has room in the answers.
  [[nodiscard]] bool next_of_far_medians() {
    if (lists_ && !far_medians_->is_list_too_long()) {
      far_medians_->end_list();
      return false;
    }
    if (lists_) {
      far_medians_->cancel_list();
      list_questions_.reset();
      lists_ = false;
      return true;
    }
    if (!far_medians_->next()) return false;
    if (!list_questions_) return true;
    const std::size_t questions = numbers_.size() / list_questions_->rows_of_question() + 1;
    lists_ = far_medians_->left_to_list() <= questions * list_questions_->listed() / 2;
    if (lists_) far_medians_->begin_list();
    return true;
  }
  // A pass begins: some of the groups are known.
  void note_far_groups(const group_table& table) {
    far_group_numbers_.assign(table.far_groups().groups, group_table::none);
    for (std::size_t group = 0; group < far_group_numbers_.size(); ++group) {
      far_group_numbers_[group] = table.known_far_group(group);
      if (far_medians_) {
        questions_of_medians().set_buckets_of(group, far_medians_->buckets_of(far_group_numbers_[group]));
      }
    }
  }
  void ask_or_skip(row_questions& questions, group_table& table, std::size_t first, std::size_t rows) {
    if (where_of_part_ == work::here) return questions.skip(first);
    with_costs(where_, [&] { questions.ask(of_.home(), first, rows); });
    for (std::size_t at = first; at < first + rows; at = questions.next_after(at, first + rows)) {
      const std::byte* const answer = questions.answer_about(at);
      for (std::size_t group = 0; answer != nullptr && group < questions.groups(); ++group) {
        std::uint32_t& number = far_group_numbers_[group];
        const bool is_new = number == group_table::none && questions.template of_group<T>(answer, group).rows > 0;
        if (is_new) number = table.number_of_far_group(group);
      }
    }
  }
  // Of a part where others have chosen, they learn.
  template <typename Ask>
  void with_costs(work where, const Ask& question) const {
    by_part_ ? question() : of_.ask_about_groups(kind(needs_medians_), passes_, where, question);
  }
  [[nodiscard]] static bool has_answers(const row_questions& questions, std::size_t first, std::size_t rows) {
    std::size_t at = first;
    while (at < first + rows && questions.answer_about(at) != nullptr) at = questions.next_after(at, first + rows);
    return at >= first + rows;
  }
  // Calls use(answer, rows) for parts of the rows; null: there is none about these.
  template <typename Use>
  static void visit_answers(const row_questions& questions, const grouped_rows& rows, const Use& use) {
    const std::size_t end = rows.first + rows.group_of.size();
    for (std::size_t at = rows.first, next = 0; at < end; at = next) {
      next = questions.next_after(at, end);
      use(questions.answer_about(at), rows.part(at, next));
    }
  }
  void add_to_far_medians(const grouped_rows& rows) {
    const row_questions& questions = questions_of_medians();
    visit_answers(questions, rows, [&](const std::byte* answer, const grouped_rows& part) {
      (answer != nullptr ? answered_rows_ : counted_rows_) += part.group_of.size();
      if (answer == nullptr) return count_here(part);
      for (std::size_t group = 0; group < questions.groups(); ++group) {
        const auto found = questions.template of_group<T>(answer, group);
        const std::uint64_t count = counts_rows_ ? found.rows : found.count;
        if (count == 0) continue;
        const std::uint32_t number = far_group_numbers_[group];
        if (!lists_) {
          far_medians_->add(number, count, found.least, found.greatest, found.places);
          continue;
        }
        std::uint16_t below = 0;
        std::memcpy(&below, found.places, sizeof below);
        const auto list = questions.list_of_group(found, group);
        far_medians_->add_listed(number, count, below, list.different, list.numbers, list.times);
      }
    });
  }
  void count_here(const grouped_rows& rows) {
    for_copies(rows, [&](std::span<const std::uint32_t> groups, std::span<const T> numbers) {
      far_medians_->add(groups, numbers, of_.valid(numbers_), group_table::none);
    });
  }
  // Calls use(groups, numbers) for parts of the rows. Numbers that are not here stay where they are, so that the next
  // pass may ask about them.
  template <typename Use>
  void for_copies(const grouped_rows& rows, const Use& use) const {
    std::array<T, 2048> numbers;
    for (std::size_t done = 0; done < rows.group_of.size();) {
      const std::span<T> part(numbers.data(), std::min(numbers.size(), rows.group_of.size() - done));
      numbers_.read(rows.first + done, part, non_temporal);
      use(rows.group_of.subspan(done, part.size()), part);
      done += part.size();
    }
  }
  [[nodiscard]] bool has_few_answers() const { return answered_rows_ < counted_rows_; }
  // All of it is counted here.
  [[nodiscard]] bool give_up_far_medians() {
    forget_far_medians();
    gives_up_ = false;
    where_ = work::here;
    if (!medians_) medians_.emplace(of_.known(numbers_));
    return true;
  }

  // What the far tier said about the groups of some rows.
  void add_answer(const std::byte* answer) {
    for (std::size_t group = 0; group < questions_->groups(); ++group) {
      const auto found = questions_->template of_group<T>(answer, group);
      const std::uint64_t count = counts_rows_ ? found.rows : found.count;
      if (count == 0) continue;
      group_values<T>& to = values_[far_group_numbers_[group]];
      to.sum += found.sum;
      to.count += count;
      if (needs_bounds_) {
        to.add_bounds(count, needs_least_ ? found.least : found.greatest,
                      needs_greatest_ ? found.greatest : found.least);
      }
    }
  }
  void add_part(const grouped_rows& rows) {
    if (counts_rows_ && !needs_sums_ && !needs_bounds_) count_rows(rows);
    const bool are_few = (!needs_sums_ || rows.groups <= most_groups_of<T>(reduction_kind::group_sums)) &&
                         (!needs_bounds_ || rows.groups <= most_groups_of<T>(reduction_kind::group_bounds));
    const bool is_any = (needs_sums_ || needs_bounds_) && rows.groups > 0;
    if (is_any && are_few) {
      with_costs(where_, [&] {
        if (needs_sums_) add_sums(rows);
        if (needs_bounds_) add_bounds(rows);
      });
    }
    const bool has_medians = medians_ && !far_medians_;
    const bool adds = is_any && !are_few;
    if (adds || has_medians) with_costs(work::here, [&] { add_row_by_row(rows, adds); });
  }
  void count_rows(const grouped_rows& rows) {
    for (const std::uint32_t group : rows.group_of) {
      if (group != group_table::none) ++values_[group].count;
    }
  }
  // Calls use(values of a group, how many of them, answer, group, row) for the groups of each page, from this row on.
  template <typename Use>
  void ask(const grouped_rows& rows, reduction_kind kind, const Use& use) {
    const interval<T> valid = of_.valid(numbers_);
    const reduction how{.type = number_type_of<T>(),
                        .lowest = bits_of(valid.lowest),
                        .highest = bits_of(valid.highest),
                        .kind = kind,
                        .groups = static_cast<std::uint8_t>(rows.groups)};
    const std::size_t counts_at = group_values_bytes(kind, sizeof(T), std::is_integral_v<T>, rows.groups);
    const auto visit = [&](std::size_t first, std::size_t, const std::byte* answer) {
      for (std::size_t group = 0; group < rows.groups; ++group) {
        std::uint16_t count = 0;
        std::memcpy(&count, answer + counts_at + group * sizeof count, sizeof count);
        if (count > 0) use(values_[group], count, answer, group, first);
      }
    };
    numbers_.visit_group_answers(rows.first, rows.short_group_of, how, visit, where_of_part_);
  }
  // Of the pages that the far tier would be asked about at once, which it adds up first (keyed_rows).
  template <typename Sum>
  struct sum_of_question {
    std::size_t number = 0;
    Sum sum = 0;
  };
  void add_sums(const grouped_rows& rows) {
    using sum_type = std::conditional_t<std::is_floating_point_v<T>, double,
                                        std::conditional_t<sizeof(T) == 8, wide_integer, std::int64_t>>;
    const std::size_t together = questions_ ? questions_->rows_of_question() : 0;
    std::vector<sum_of_question<sum_type>> of_question(together > 0 ? rows.groups : 0);
    ask(rows, reduction_kind::group_sums,
        [&](group_values<T>& to, std::uint16_t count, const std::byte* answer, std::size_t group, std::size_t row) {
          sum_type sum = 0;
          std::memcpy(&sum, answer + group * sizeof sum, sizeof sum);
          to.count += count;
          if (together == 0) {
            to.sum += sum;
            return;
          }
          if (of_question[group].number != row / together) to.sum += std::exchange(of_question[group].sum, 0);
          of_question[group].number = row / together;
          of_question[group].sum += sum;
        });
    for (std::size_t group = 0; group < of_question.size(); ++group) values_[group].sum += of_question[group].sum;
  }
  void add_bounds(const grouped_rows& rows) {
    ask(rows, reduction_kind::group_bounds,
        [](group_values<T>& to, std::uint16_t count, const std::byte* answer, std::size_t group, std::size_t) {
          std::array<T, 2> bounds;
          std::memcpy(bounds.data(), answer + group * sizeof bounds, sizeof bounds);
          to.add_bounds(count, bounds[0], bounds[1]);
        });
  }
  // Calls use(groups, numbers) for parts of the rows.
  template <typename Use>
  void for_parts(const grouped_rows& rows, const Use& use) const {
    for (std::size_t done = 0; done < rows.group_of.size();) {
      const scope here(of_.home().home());
      const std::span<const T> part = how_.chunk(numbers_, here, rows.first + done, rows.group_of.size() - done);
      use(rows.group_of.subspan(done, part.size()), part);
      done += part.size();
    }
  }
  // `adds`: to sums and bounds.
  void add_row_by_row(const grouped_rows& rows, bool adds) {
    const interval<T> valid = of_.valid(numbers_);
    const bool has_medians = medians_ && !far_medians_;
    if (has_medians && !medians_->expect(rows.groups)) medians_.reset();
    const bool stores = needs_medians_ && !medians_ && pass_ > 0;
    for_parts(rows, [&](std::span<const std::uint32_t> groups, std::span<const T> part) {
      if (has_medians && medians_) medians_->add(groups, part, valid);
      for (std::size_t i = 0; (adds || stores) && i < part.size(); ++i) {
        if (groups[i] == group_table::none || !(part[i] >= valid.lowest && part[i] <= valid.highest)) continue;
        if (adds) values_[groups[i]].add(part[i]);
        if (stores) values_[groups[i]].coming.push_back(part[i]);
      }
    });
    if (!stores) return;
    for (group_values<T>& one : values_) one.store(of_.home());
  }

  walk how_;
  const column& of_;
  const vector<T>& numbers_;
  bool needs_counts_ = false;
  bool needs_sums_ = false;
  bool needs_least_ = false;
  bool needs_greatest_ = false;
  bool needs_bounds_ = false;  // one of these
  bool needs_medians_ = false;
  bool needs_others_ = false;
  bool counts_rows_ = false;
  work where_ = work::here;
  unsigned passes_ = 1;      // over all rows, or so, where they are asked about
  bool by_part_ = false;     // the first pass is answered for where each part is cheaper
  bool found_here_ = false;  // the medians, by choice
  work where_of_part_ = work::here;
  bool gives_up_ = false;  // the other medians are found here, from the next pass on
  unsigned pass_ = 0;
  std::optional<row_questions> questions_;  // if there may be some: sums are added in their way in any case
  std::vector<std::uint32_t> far_group_numbers_;
  std::optional<group_medians<T>> medians_;  // as long as there are few groups; used unless there are the others
  std::optional<far_medians<T>> far_medians_;
  bool lists_ = false;                             // in this pass
  std::optional<row_questions> bucket_questions_;  // for these
  std::optional<row_questions> list_questions_;    // likewise
  std::uint64_t answered_rows_ = 0;
  std::uint64_t counted_rows_ = 0;  // of those that were not answered
  std::vector<group_values<T>> values_;
};

[[nodiscard]] inline std::unique_ptr<group_collector> collect(const walk& how, const column& of) {
  return of.visit([&](const auto& numbers) -> std::unique_ptr<group_collector> {
    using T = typename std::remove_cvref_t<decltype(numbers)>::value_type;
    return std::make_unique<collector_of<T>>(how, of, numbers);
  });
}

}  // namespace far::detail
