// Where the questions about columns are answered: the rule alone, and in a data frame. Needs permission for
// userfaultfd.
#include "far/detail/question_costs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/units.h"
#include "far/dataframe.h"
#include "far/runtime.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

using detail::page_costs;
using detail::question_place;

// Pages of 1000 ns when asked about and 10000 when fetched.
void teach(page_costs& costs) {
  for (int i = 0; i < 40; ++i) {
    costs.learn(work::there, {1'000, 0, 1'000'000});
    costs.learn(work::here, {0, 1'000, 10'000'000});
  }
  ASSERT_NEAR(costs.asked_ns(), 1'000, 10);
  ASSERT_NEAR(costs.fetched_ns(), 10'000, 100);
}

TEST(question_costs, are_averages_in_which_one_sample_weighs_little) {
  page_costs costs;
  teach(costs);
  costs.learn(work::there, {1'000, 0, 1e12});  // the processor was away
  EXPECT_LT(costs.asked_ns(), 2'000);
  teach(costs);
  costs.learn(work::there, {10, 0, 1'000'000});  // a round trip and a few pages
  costs.learn(work::here, {0, 10, 1'000'000'000});
  EXPECT_NEAR(costs.asked_ns(), 1'000, 10);
  EXPECT_NEAR(costs.fetched_ns(), 10'000, 100);
}

TEST(question_costs, of_a_column_that_stays_are_a_rent_until_it_is_bought) {
  page_costs costs;
  teach(costs);
  question_place place;
  int asked = 0;
  for (; place.choose(costs, 500, 1, true) == work::there; ++asked) {
    ASSERT_LT(asked, 100);
    place.learn(costs, work::there, {500, 0, 500'000});
  }
  EXPECT_NEAR(asked, 9, 1);  // the next question is the tenth
  place.learn(costs, work::here, {0, 500, 5'000'000});
  // From here on: of what is resident nothing is asked, so that there is no rent.
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(place.choose(costs, 500, 1, true), work::there);
    place.learn(costs, work::there, {0, 0, 500'000});
  }
  // A question that takes many passes is dearer than fetching at once.
  EXPECT_EQ(question_place().choose(costs, 500, 11, true), work::here);
}

TEST(question_costs, of_a_column_that_does_not_stay_are_compared) {
  page_costs costs;
  teach(costs);
  question_place place;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(place.choose(costs, 1'000'000, 5, false), work::there);
    place.learn(costs, work::there, {5'000'000, 0, 5e9});
  }
  for (int i = 0; i < 40; ++i) costs.learn(work::there, {1'000, 0, 20'000'000});  // a server that is busy
  EXPECT_EQ(place.choose(costs, 1'000'000, 1, false), work::here);
  teach(costs);
  EXPECT_EQ(place.choose(costs, 1'000'000, 1, false), work::there);
}

TEST(question_costs, are_those_of_fetching_for_few_pages_and_where_nothing_answers) {
  page_costs costs;
  EXPECT_EQ(question_place().choose(costs, 16, 1, true), work::here);
  EXPECT_EQ(question_place().choose(costs, 100, 1, true), work::there);
  costs.learn(work::there, {0, 1'000, 1'000'000});  // all pages were fetched instead
  EXPECT_FALSE(costs.answers());
  EXPECT_EQ(question_place().choose(costs, 100, 1, true), work::here);
  EXPECT_EQ(question_place().choose(costs, 1'000'000, 1, false), work::here);
}

class placed_questions : public heap::real_pager_test<> {
 protected:
  placed_questions() {
    runtime_options chosen = heap::small_runtime(16 * mib);
    chosen.far = "memory:";
    home_ = std::make_unique<runtime>(chosen);
  }
  dataframe numbers(std::size_t rows) {
    dataframe frame(*home_);
    column values(*home_, column_type::int64);
    std::vector<std::int64_t> some(rows);
    for (std::size_t i = 0; i < rows; ++i) some[i] = static_cast<std::int64_t>(i);
    values.append_numbers(std::span<const std::int64_t>(some));
    frame.add("x", std::move(values));
    home_->evict_all();
    return frame;
  }
  [[nodiscard]] std::uint64_t asked() const { return home_->statistics().reduced_pages; }
  [[nodiscard]] std::uint64_t fetched() const { return home_->statistics().fetched_pages; }

  std::unique_ptr<runtime> home_;
};

TEST_F(placed_questions, about_a_small_column_are_asked_there_until_it_is_fetched) {
  const dataframe frame = numbers(50'000);  // 49 pages
  const std::uint64_t before = fetched();
  int questions = 0;
  for (; fetched() == before; ++questions) {
    ASSERT_LT(questions, 10'000) << "however cheap asking is, in the end fetching is cheaper";
    ASSERT_EQ(frame["x"].count_between(std::int64_t{100}, std::int64_t{40'000}), 39'901u);
  }
  EXPECT_GE(questions, 2);
  EXPECT_GT(asked(), 0u);
  const std::uint64_t asked_before = asked();
  for (int i = 0; i < 10; ++i) static_cast<void>(frame["x"].count_between(std::int64_t{i}, null));
  EXPECT_EQ(asked(), asked_before) << "it is here";
}

TEST_F(placed_questions, about_all_values_are_answered_without_their_pages) {
  dataframe frame = numbers(50'000);
  const std::uint64_t before = asked() + fetched();
  EXPECT_EQ(frame["x"].max(), cell(std::int64_t{49'999}));
  EXPECT_EQ(frame["x"].min(), cell(std::int64_t{0}));
  EXPECT_EQ(frame["x"].sum(), cell(std::int64_t{50'000} * 49'999 / 2));
  EXPECT_EQ(frame["x"].null_count(), 0u);
  EXPECT_EQ(asked() + fetched(), before);
  frame.append({std::int64_t{70'000}});
  EXPECT_EQ(frame["x"].max(), cell(std::int64_t{70'000}));
  const std::vector<std::int64_t> more = {80'000, column::no_integer};
  frame["x"].append_numbers(std::span<const std::int64_t>(more));
  EXPECT_EQ(frame["x"].max(), cell(std::int64_t{80'000}));
  EXPECT_EQ(frame["x"].null_count(), 1u);
}

}  // namespace
}  // namespace far
