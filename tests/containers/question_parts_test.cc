// Groups of a data frame, of whose rows each part is answered where it is cheaper: with one far tier, with servers that
// have the rows in turn, and with copies. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/dataframe.h"
#include "far/runtime.h"
#include "memory_server.h"
#include "tests/support/real_pager.h"
#include "tests/support/today.h"

namespace far {
namespace {

struct chosen_tier {
  std::string name;  // of the test
  unsigned servers;
  std::string options;

  friend void PrintTo(const chosen_tier& shown, std::ostream* out) { *out << shown.name; }
};

// Groups of 800 000 rows, four parts, whose questions are begun with costs of a page that the test says.
class groups_by_part : public heap::far_tier_test, public ::testing::WithParamInterface<chosen_tier> {
 protected:
  void SetUp() override {
    far_tier_test::SetUp();
    if (IsSkipped()) return;
    std::string far = "tcp://";
    for (unsigned i = 0; i < GetParam().servers; ++i) {
      servers_.push_back(std::make_unique<testing_support::memory_server>(testing_support::memory_server_options{}));
      far += (i == 0 ? "" : ",") + servers_.back()->address();
    }
    runtime& home = farheap(servers_.empty() ? "memory:" : far + GetParam().options);
    column keys(home, column_type::int64);
    column values(home, column_type::float64);
    std::vector<std::int64_t> some_keys;
    std::vector<double> some_values;
    for (std::size_t i = 0; i < rows; ++i) {
      some_keys.push_back(static_cast<std::int64_t>(i * 7 % 12));
      some_values.push_back(i % 5 == 0 ? column::no_real : static_cast<double>(i * 2'654'435'761 % 1'000'003) / 7);
    }
    keys.append_numbers(std::span<const std::int64_t>(some_keys));
    values.append_numbers(std::span<const double>(some_values));
    frame_.emplace(home);
    frame_->add("key", std::move(keys));
    frame_->add("x", std::move(values));
  }
  void TearDown() override { frame_.reset(); }

  [[nodiscard]] std::vector<cell> group(const std::vector<dataframe::wanted>& wanted) {
    home_->evict_all();
    return grouped_as_it_is(wanted);
  }
  [[nodiscard]] std::vector<cell> grouped_as_it_is(const std::vector<dataframe::wanted>& wanted) const {
    const dataframe found = frame_->group_by({"key"}, wanted);
    std::vector<cell> cells;
    for (std::size_t column = 0; column <= wanted.size(); ++column) {
      for (std::size_t row = 0; row < found.rows(); ++row) cells.push_back(found.column_at(column).at(row));
    }
    return cells;
  }
  void teach(double asked_ns, double fetched_ns) {
    for (const auto kind : {detail::question_kind::groups, detail::question_kind::medians}) {
      detail::part_costs& costs = (*frame_)["x"].costs_of_parts(kind);
      for (int i = 0; i < 60; ++i) {
        costs.learn(work::there, {1'000}, asked_ns * 1'000);
        costs.learn(work::here, {1'000}, fetched_ns * 1'000);
      }
    }
  }
  [[nodiscard]] std::uint64_t asked() const { return home_->statistics().reduced_pages; }
  [[nodiscard]] std::uint64_t fetched() const { return home_->statistics().fetched_pages; }

  static constexpr std::size_t rows = 800'000;
  const std::vector<dataframe::wanted> sums_ = {{"x", aggregate::sum}, {"x", aggregate::max}, {"x", aggregate::count}};
  const std::vector<dataframe::wanted> medians_ = {{"x", aggregate::median}, {"x", aggregate::mean}};
  std::optional<dataframe> frame_;

 private:
  std::vector<std::unique_ptr<testing_support::memory_server>> servers_;
};

TEST_P(groups_by_part, are_the_same_whichever_way_each_part_takes) {
  frame_->place(placement::here);
  const std::vector<cell> sums = group(sums_);
  const std::vector<cell> medians = group(medians_);
  frame_->place(placement::automatic);
  // Both ways, to learn.
  const std::uint64_t asked_before = asked();
  const std::uint64_t fetched_before = fetched();
  EXPECT_EQ(group(sums_), sums);
  EXPECT_EQ(group(medians_), medians);
  EXPECT_GT(asked(), asked_before + 500);
  EXPECT_GT(fetched(), fetched_before + 500);
  constexpr double much = 1e12;
  // A day has two of these.
  std::size_t number = 0;
  for (const auto& [asked_ns, fetched_ns] : {std::pair(1.0, much), {much, 1.0}, {1.0, 1.2}, {1.2, 1.0}}) {
    if (!testing_support::is_of_today(number++, 2)) continue;
    teach(asked_ns, fetched_ns);
    EXPECT_EQ(group(sums_), sums) << asked_ns << " " << fetched_ns;
    // With nearly equal ones, servers' medians are given up after the first part.
    teach(asked_ns, fetched_ns);
    EXPECT_EQ(group(medians_), medians) << asked_ns << " " << fetched_ns;
  }
}

TEST_P(groups_by_part, take_the_cheaper_way) {
  teach(1, 1e12);
  const std::uint64_t fetched_before = fetched();
  static_cast<void>(group(sums_));
  EXPECT_LT(fetched(), fetched_before + 100);
  static_cast<void>(group(medians_));
  EXPECT_LT(fetched(), fetched_before + 200);
  teach(1e12, 1);
  const std::uint64_t asked_before = asked();
  static_cast<void>(group(sums_));
  static_cast<void>(group(medians_));
  EXPECT_EQ(asked(), asked_before);
}

// It is tried to ask for them; when that is over, nothing is left to do in the pass.
TEST_P(groups_by_part, teach_nothing_of_parts_in_which_nothing_is_counted) {
  detail::part_costs& costs = (*frame_)["x"].costs_of_parts(detail::question_kind::medians);
  for (int i = 0; i < 4; ++i) costs.learn(work::there, {1'000}, 2'000);
  for (int i = 0; i < 200; ++i) costs.learn(work::here, {1'000}, 1'000);
  const std::uint64_t asked_before = asked();
  static_cast<void>(group({{"x", aggregate::median}}));
  EXPECT_GT(asked(), asked_before) << "a try";
  for (const auto kind : {detail::question_kind::keys, detail::question_kind::groups}) {
    detail::part_costs& others = (*frame_)["x"].costs_of_parts(kind);
    EXPECT_FALSE(others.page_ns(work::there) || others.page_ns(work::here));
  }
}

// Nobody answers for rows whose values are all here: their keys are read, and not those of the rows behind them.
TEST_P(groups_by_part, copy_the_keys_of_rows_that_are_here) {
  const std::vector<cell> expected = group(sums_);
  frame_->place(placement::there);
  home_->evict_all();
  std::vector<double> some(detail::most_rows);  // an eighth of a part
  const vector<double>& values = *(*frame_)["x"].numbers<double>();
  for (std::size_t first = 0; first + some.size() < rows; first += 8 * some.size()) {
    values.read(first, std::span<double>(some));
  }
  const std::uint64_t asked_before = asked();
  const std::uint64_t fetched_before = fetched();
  EXPECT_EQ(grouped_as_it_is(sums_), expected);
  EXPECT_GT(asked(), asked_before + 500);
  EXPECT_LT(fetched(), fetched_before + 100) << "40 pages of keys are needed";
}

// 24 groups: more than servers find medians of float64 for, and not more than those of int16.
class groups_of_two_columns : public heap::far_tier_test {
 protected:
  // Each column has so many rows.
  dataframe make(const std::string& reals, const std::string& integers, std::size_t rows) {
    runtime& home = *home_;
    column keys(home, column_type::int64);
    column some_reals(home, column_type::float64);
    column some_integers(home, column_type::int64);
    std::vector<std::int64_t> hours;
    std::vector<double> fares;
    std::vector<std::int64_t> passengers;
    for (std::size_t i = 0; i < rows; ++i) {
      hours.push_back(static_cast<std::int64_t>(i * 7 % 24));
      fares.push_back(static_cast<double>(i * 2'654'435'761 % 1'000'003) / 7);
      passengers.push_back(static_cast<std::int64_t>(i * 40'503 % 30'011));
    }
    keys.append_numbers(std::span<const std::int64_t>(hours));
    some_reals.append_numbers(std::span<const double>(fares));
    some_integers.append_numbers(std::span<const std::int64_t>(passengers));
    dataframe frame(home);
    frame.add("hour", std::move(keys));
    frame.add(reals, std::move(some_reals));
    frame.add(integers, std::move(some_integers));
    home.evict_all();
    return frame;
  }
  void SetUp() override {
    far_tier_test::SetUp();
    if (!IsSkipped()) farheap("memory:");
  }
  static void teach(const dataframe& frame, double asked_ns, double fetched_ns) {
    for (const auto kind :
         {detail::question_kind::keys, detail::question_kind::groups, detail::question_kind::medians}) {
      detail::part_costs& costs = frame["hour"].costs_of_parts(kind);
      for (int i = 0; i < 2; ++i) {
        costs.learn(work::there, {1'000}, asked_ns * 1'000);
        costs.learn(work::here, {1'000}, fetched_ns * 1'000);
      }
    }
  }
  [[nodiscard]] static std::vector<cell> cells(const dataframe& of) {
    std::vector<cell> all;
    for (std::size_t row = 0; row < of.rows(); ++row) {
      for (std::size_t column = 0; column < of.names().size(); ++column) all.push_back(of.column_at(column).at(row));
    }
    return all;
  }
  [[nodiscard]] std::uint64_t asked() const { return home_->statistics().reduced_pages; }
  [[nodiscard]] std::uint64_t fetched() const { return home_->statistics().fetched_pages; }
};

TEST_F(groups_of_two_columns, are_asked_for_beside_medians_that_nobody_finds) {
  for (const auto& [reals, integers] : {std::pair("a", "b"), {"b", "a"}}) {
    for (const aggregate what : {aggregate::median, aggregate::mean}) {
      // A day has each of the orders, and each aggregate.
      const std::size_t number = (what == aggregate::mean ? 1 : 0) + (std::string(reals) == "b" ? 1 : 0);
      if (!testing_support::is_of_today(number, 2)) continue;
      dataframe frame = make(reals, integers, 1'200'000);
      const std::vector<dataframe::wanted> wanted = {{reals, aggregate::median}, {integers, what}};
      frame.place(placement::here);
      const std::vector<cell> expected = cells(frame.group_by({"hour"}, wanted));
      frame.place(placement::automatic);
      home_->evict_all();
      teach(frame, 1, 1e12);
      const std::uint64_t before = asked();
      EXPECT_EQ(cells(frame.group_by({"hour"}, wanted)), expected);
      EXPECT_GT(asked(), before + 200) << reals << " " << name_of(what);
    }
  }
}

TEST_F(groups_of_two_columns, teach_what_it_costs_to_fetch_a_column_that_stays) {
  const dataframe frame = make("x", "y", 200'000);
  for (int i = 0; i < 2; ++i) {
    home_->evict_all();
    static_cast<void>(frame.group_by({"hour"}, {{"x", aggregate::median}}));
  }
  EXPECT_TRUE(frame["x"].costs_of_whole(detail::question_kind::medians).page_ns(work::here));
}

// A part of the rows has 64 pages of keys of a byte.
TEST_F(groups_of_two_columns, are_counted_by_narrow_keys_of_which_a_page_is_here) {
  const dataframe frame = make("x", "y", 1'200'000);
  teach(frame, 1, 1e12);
  constexpr std::size_t rows_of_part = 64 * page_bytes;
  for (std::size_t row = 0; row < frame.rows(); row += rows_of_part) static_cast<void>(frame["hour"].at(row));
  EXPECT_LT(frame["hour"].pages_away(0, rows_of_part), 64u);
  EXPECT_GT(frame["hour"].pages_away(0, rows_of_part), 30u);
  const std::uint64_t asked_before = asked();
  const std::uint64_t fetched_before = fetched();
  const dataframe found = frame.group_by({"hour"}, {{"x", aggregate::count}});
  EXPECT_EQ(found["x_count"].at(3), cell(std::int64_t{50'000}));
  EXPECT_GT(asked(), asked_before + 100);
  EXPECT_LE(fetched(), fetched_before + 50);
}

INSTANTIATE_TEST_SUITE_P(on, groups_by_part,
                         ::testing::Values(chosen_tier{"memory", 0, ""}, chosen_tier{"stripes", 3, ""},
                                           chosen_tier{"copies", 2, "?copies=2"}),
                         [](const auto& one) { return one.param.name; });

// With parity, servers answer page by page, and not about rows. What is here of a column is no reason to fetch the
// rest.
class medians_page_by_page : public heap::far_tier_test {
 protected:
  void TearDown() override { home_.reset(); }

  std::vector<std::unique_ptr<testing_support::memory_server>> servers_;
};

TEST_F(medians_page_by_page, do_not_fetch_a_column_whose_first_part_is_here) {
  std::string far = "tcp://";
  for (int i = 0; i < 3; ++i) {
    servers_.push_back(std::make_unique<testing_support::memory_server>(testing_support::memory_server_options{}));
    far += (i == 0 ? "" : ",") + servers_.back()->address();
  }
  column all(farheap(far + "?parity=2+1"), column_type::float64);
  std::vector<double> some(std::size_t{3} << 20);  // 24 MiB, six parts
  for (std::size_t i = 0; i < some.size(); ++i) some[i] = static_cast<double>(i * 2'654'435'761 % some.size()) / 7;
  all.append_numbers(std::span<const double>(some));
  home_->evict_all();
  const vector<double>& numbers = *all.numbers<double>();
  numbers.read(0, std::span(some).first(std::size_t{1} << 19));
  detail::part_costs& costs = all.costs_of_parts(detail::question_kind::ranks);
  for (int i = 0; i < 2; ++i) {
    costs.learn(work::there, {1'000}, 1'000);
    costs.learn(work::here, {1'000}, 1e12);
  }
  const std::uint64_t before = home_->statistics().fetched_pages;
  const double half = static_cast<double>(some.size()) / 2;
  EXPECT_DOUBLE_EQ(*all.quantile(0.5), (half - 0.5) / 7);
  EXPECT_LE(home_->statistics().fetched_pages, before + 1'024) << "less than a part";
}

}  // namespace
}  // namespace far
