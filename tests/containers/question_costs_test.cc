// Where the questions about columns are answered: the rule alone, and in a data frame. Needs permission for
// userfaultfd.
#include "far/detail/question_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/dataframe.h"
#include "far/detail/rank_questions.h"
#include "far/runtime.h"
#include "far/vector.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

using detail::other_than;
using detail::part_costs;
using detail::part_pages;
using detail::question_place;

constexpr std::size_t pages_of_part = 500;

// A far tier and parts of questions about it, as many as wanted.
class modelled_tier {
 public:
  // For a page.
  double asked_ns = 1'000;
  double fetched_ns = 10'000;

  // Returns where the next part was answered.
  work answer() {
    const work where = costs.choose({pages_of_part});
    answer(where, ns_of(where));
    return where;
  }
  void answer(work where, double page_ns) {
    costs.learn(where, {pages_of_part}, page_ns * pages_of_part);
    spent += page_ns;
  }
  [[nodiscard]] double ns_of(work where) const { return where == work::there ? asked_ns : fetched_ns; }
  // The first four parts try both ways.
  void begin() {
    for (int i = 0; i < 4; ++i) answer();
    ASSERT_TRUE(costs.better());
    spent = 0;
  }

  part_costs costs;
  double spent = 0;
};

TEST(part_costs, try_both_ways_twice_at_first) {
  modelled_tier tier;
  EXPECT_FALSE(tier.costs.better());
  for (const work expected : {work::there, work::there, work::here, work::here, work::there}) {
    EXPECT_EQ(tier.answer(), expected);
  }
  EXPECT_EQ(tier.costs.better(), work::there);
  EXPECT_NEAR(*tier.costs.page_ns(work::there), 1'000, 1);
  EXPECT_NEAR(*tier.costs.page_ns(work::here), 10'000, 1);
}

TEST(part_costs, are_not_learned_from_few_pages) {
  modelled_tier tier;
  tier.begin();
  EXPECT_EQ(tier.costs.choose({part_pages::usual_fewest - 1}), work::here) << "a round trip costs as much";
  tier.costs.learn(work::there, {part_pages::usual_fewest - 1}, 1e12);
  EXPECT_EQ(tier.costs.choose({pages_of_part}), work::there);
  const part_pages of_narrow_columns{.away = 20, .fewest = 16};
  EXPECT_EQ(tier.costs.choose(of_narrow_columns), work::there) << "a part has no more";
}

// A search for several codes.
TEST(part_costs, are_those_of_a_page_that_is_asked_about_once) {
  part_costs costs;
  for (int i = 0; i < 2; ++i) {
    costs.learn(work::there, {.away = 100, .times = 5}, 500'000);
    costs.learn(work::here, {.away = 100, .times = 5}, 300'000);
  }
  EXPECT_NEAR(*costs.page_ns(work::there), 1'000, 1);
  EXPECT_NEAR(*costs.page_ns(work::here), 3'000, 1);
  EXPECT_EQ(costs.choose({.away = 100, .times = 2}), work::there);
  EXPECT_EQ(costs.choose({.away = 100, .times = 4}), work::here);
  EXPECT_EQ(costs.better(4), work::here);
}

TEST(part_costs, are_near_the_best_way_for_any_number_of_codes) {
  modelled_tier tier;
  tier.fetched_ns = 5'000;
  tier.begin();
  double best = 0;
  double spent = 0;
  for (unsigned i = 0; i < 20'000; ++i) {
    const part_pages part{.away = pages_of_part, .times = 1 + i % 16};
    const work where = tier.costs.choose(part);
    const double cost = pages_of_part * (where == work::there ? tier.asked_ns * part.times : tier.fetched_ns);
    tier.costs.learn(where, part, cost);
    spent += cost;
    best += pages_of_part * std::min(tier.asked_ns * part.times, tier.fetched_ns);
  }
  EXPECT_LE(spent, best * (1 + part_costs::share_of_tries));
  EXPECT_NEAR(*tier.costs.page_ns(work::there), 1'000, 1);
}

// Such as those for which nobody answers after others were read.
TEST(part_costs, are_not_tried_less_because_of_parts_without_a_choice) {
  modelled_tier tier;
  tier.fetched_ns = 3'000;
  tier.begin();
  for (int i = 0; i < 1'000; ++i) tier.costs.learn(work::here, {pages_of_part}, 3'000.0 * pages_of_part, true);
  int tries = 0;
  for (int i = 0; i < 1'000; ++i) tries += tier.answer() == work::here ? 1 : 0;
  EXPECT_GE(tries, 10);
}

TEST(part_costs, are_near_the_best_way_however_far_the_other_is_off) {
  for (const double ratio : {1.01, 1.5, 3.0, 10.0, 1000.0}) {
    for (const work best : {work::there, work::here}) {
      modelled_tier tier;
      tier.asked_ns = best == work::there ? 1'000 : 1'000 * ratio;
      tier.fetched_ns = best == work::here ? 1'000 : 1'000 * ratio;
      tier.begin();
      constexpr int parts = 20'000;
      int tries = 0;
      for (int i = 0; i < parts; ++i) tries += tier.answer() == best ? 0 : 1;
      EXPECT_LE(tier.spent, parts * 1'000 * (1 + part_costs::share_of_tries)) << ratio;
      EXPECT_GE(tries, ratio > 100 ? 0 : 20) << ratio << ": it is still looked at";
    }
  }
}

TEST(part_costs, follow_a_way_that_becomes_dearer_at_once) {
  modelled_tier tier;
  tier.fetched_ns = 3'000;
  tier.begin();
  for (int i = 0; i < 1'000; ++i) tier.answer();
  tier.asked_ns = 30'000;  // a server that is busy
  int late = 0;
  while (tier.answer() == work::there) ASSERT_LT(++late, 4);
  int wrong = 0;
  for (int i = 0; i < 1'000; ++i) wrong += tier.answer() == work::there ? 1 : 0;
  EXPECT_LE(wrong, 10);
}

TEST(part_costs, find_a_way_that_becomes_cheaper) {
  for (const double before : {1'500.0, 3'000.0, 10'000.0}) {
    modelled_tier tier;
    tier.fetched_ns = before;
    tier.begin();
    for (int i = 0; i < 1'000; ++i) tier.answer();
    tier.fetched_ns = 500;
    int late = 0;
    // What it seems to cost more is saved for in 32 parts, and is half as much after each try.
    while (tier.costs.better() == work::there) {
      ASSERT_LT(++late, 64 * before / 1'000 + 100) << before;
      tier.answer();
    }
  }
}

TEST(part_costs, hardly_change_by_one_part_during_which_the_processor_was_away) {
  modelled_tier tier;
  tier.fetched_ns = 2'000;
  tier.answer(work::there, 1'000'000);  // the very first one, too
  tier.begin();
  EXPECT_EQ(tier.costs.better(), work::there);
  tier.answer(work::there, 1'000'000);
  EXPECT_EQ(tier.costs.better(), work::there);
  EXPECT_LE(*tier.costs.page_ns(work::there), 1'500);
}

TEST(part_costs, save_up_for_a_try_that_was_a_surprise) {
  modelled_tier tier;
  tier.fetched_ns = 2'000;
  tier.begin();
  tier.fetched_ns = 1'000'000;
  constexpr int parts = 20'000;
  for (int i = 0; i < parts; ++i) tier.answer();
  EXPECT_LE(tier.spent, parts * 1'000 * (1 + part_costs::share_of_tries) + 1'000'000);
}

TEST(part_costs, are_not_learned_from_parts_that_failed) {
  part_costs costs;
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(
        {
          const detail::costly_part part(costs, {pages_of_part});
          throw std::bad_alloc();
        },
        std::bad_alloc);
  }
  EXPECT_FALSE(costs.page_ns(work::there));
}

// It makes a way cheap when it is not taken, and dear as soon as it is.
TEST(part_costs, cannot_be_lured_again_and_again) {
  for (const double dear : {3'000.0, 100'000.0, 10'000'000.0}) {
    modelled_tier tier;
    tier.fetched_ns = 2'000;
    tier.begin();
    constexpr int parts = 300'000;
    for (int i = 0; i < parts; ++i) {
      const work where = tier.costs.choose({pages_of_part});
      const bool is_bait = where == work::here && tier.costs.better() == work::there;
      tier.answer(where, where == work::there ? 1'000 : is_bait ? 100 : dear);
    }
    const double best = parts * 1'000.0;
    EXPECT_LE(tier.spent, best * 1.1 + 20 * dear) << dear;
  }
}

// Costs that change at random, by up to a hundred times, after some hundred parts: beside who knows them all.
TEST(part_costs, keep_up_with_costs_that_change_at_random) {
  std::mt19937_64 random(5);
  const auto draw = [&](double most) { return std::exp(std::uniform_real_distribution(0.0, std::log(most))(random)); };
  double spent = 0;
  double best = 0;
  double worse_of_two = 0;
  for (int course = 0; course < 50; ++course) {
    modelled_tier tier;
    double all_there = 0;
    double all_here = 0;
    for (int phase = 0; phase < 20; ++phase) {
      tier.asked_ns = 1'000 * draw(100);
      tier.fetched_ns = 1'000 * draw(100);
      const int parts = static_cast<int>(200 * draw(10));
      for (int i = 0; i < parts; ++i) tier.answer();
      best += parts * std::min(tier.asked_ns, tier.fetched_ns);
      all_there += parts * tier.asked_ns;
      all_here += parts * tier.fetched_ns;
    }
    spent += tier.spent;
    worse_of_two += std::min(all_there, all_here);
  }
  EXPECT_LE(spent, 1.8 * best) << "with a foreknowledge of all changes";
  EXPECT_LE(spent, 0.75 * worse_of_two) << "with the way that is better in all, which a fixed choice would be";
}

TEST(question_place, of_a_column_that_stays_is_a_rent_until_it_is_bought) {
  modelled_tier tier;
  tier.begin();
  part_costs& costs = tier.costs;
  question_place place;
  int asked = 0;
  for (; place.choose(costs, 500, 1) == work::there; ++asked) {
    ASSERT_LT(asked, 100);
    place.learn(costs, work::there, {500, 0, 500'000}, 1);
  }
  EXPECT_NEAR(asked, 9, 1);  // the next question is the tenth
  place.learn(costs, work::here, {0, 500, 5'000'000}, 1);
  // From here on: of what is resident nothing is asked, so that there is no rent.
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(place.choose(costs, 500, 1), work::there);
    place.learn(costs, work::there, {0, 0, 500'000}, 1);
  }
  // A question that takes many passes is dearer than fetching at once.
  EXPECT_EQ(question_place().choose(costs, 500, 11), work::here);
}

TEST(question_place, is_here_for_few_pages) {
  const part_costs costs;
  EXPECT_EQ(question_place().choose(costs, 16, 1), work::here);
  EXPECT_EQ(question_place().choose(costs, 100, 1), work::there);
}

TEST(question_place, pays_for_asking_where_nothing_answers_as_for_fetching) {
  part_costs costs;
  question_place place;
  for (int i = 0; i < 2; ++i) place.learn(costs, work::there, {0, 1'000, 3'000'000}, 1);  // all was fetched instead
  EXPECT_EQ(place.choose(costs, 1'000, 1), work::here) << "it has been bought";
  EXPECT_NEAR(*costs.page_ns(work::there), 3'000, 1);
}

// A column that is pushed out between questions.
TEST(question_place, is_found_again_after_a_time_of_trouble) {
  for (const unsigned passes : {1U, 3U}) {
    part_costs costs;
    question_place place;
    constexpr std::size_t pages = 1'000;
    const auto answer = [&](double asked_ns) {
      const work where = place.choose(costs, pages, passes);
      const bool is_there = where == work::there;
      const double ns = static_cast<double>(pages) * (is_there ? passes * asked_ns : 2'400);
      const detail::question_cost cost{is_there ? pages * passes : 0, is_there ? 0 : pages, ns};
      place.learn(costs, where, cost, passes);
      return where;
    };
    for (int i = 0; i < 1'000; ++i) answer(600);
    for (int i = 0; i < 1'000; ++i) answer(20'000);  // a server that is busy
    EXPECT_EQ(costs.better(passes), work::here);
    int dear = 0;
    for (int i = 0; i < 1'000; ++i) dear += answer(20'000) == work::there ? 1 : 0;
    EXPECT_LE(dear, 10) << passes;
    for (int i = 0; i < 1'000; ++i) answer(600);
    int asked = 0;
    for (int i = 0; i < 1'000; ++i) asked += answer(600) == work::there ? 1 : 0;
    EXPECT_GE(asked, 400) << passes << ": rented and bought in turn";
  }
}

TEST(question_place, learns_of_one_pass) {
  part_costs costs;
  question_place place;
  for (int i = 0; i < 2; ++i) {
    place.learn(costs, work::there, {400, 0, 400'000}, 4);
    place.learn(costs, work::here, {0, 100, 300'000}, 4);
  }
  EXPECT_NEAR(*costs.page_ns(work::there), 1'000, 1);
  EXPECT_NEAR(*costs.page_ns(work::here), 3'000, 1);
}

TEST(part_costs, are_not_settled_for_ever_by_pages_that_others_fetch) {
  modelled_tier tier;
  tier.begin();
  question_place().learn(tier.costs, work::there, {0, 1'000, 10'000'000}, 1);  // of a column that is here
  EXPECT_EQ(tier.answer(), work::there);
  for (int i = 0; i < 20; ++i) tier.answer();
  EXPECT_NEAR(*tier.costs.page_ns(work::there), tier.asked_ns, 10);
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

TEST_F(placed_questions, about_texts_with_many_codes_are_answered_here) {
  dataframe frame(*home_);
  column texts(*home_, column_type::text);
  for (int i = 0; i < 200; ++i) texts.append((i % 2 == 0 ? "even" : "odd") + std::to_string(i));
  std::vector<std::int32_t> codes(1'000'000);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::int32_t>(i % 200);
  texts.append_numbers(std::span<const std::int32_t>(codes));
  frame.add("x", std::move(texts));
  home_->evict_all();
  const std::uint64_t before = asked();
  EXPECT_EQ(frame["x"].rows_containing("odd").size(), 100u + codes.size() / 2);
  EXPECT_EQ(asked(), before) << "each page would be asked about 100 times";
}

TEST_F(placed_questions, about_columns_that_stay_have_costs_of_their_own) {
  const dataframe frame = numbers(200'000);
  const column& x = frame["x"];
  const auto kind = detail::question_kind::medians;
  EXPECT_EQ(x.place_groups(kind, 3), work::there);
  for (int i = 0; i < 10; ++i) {
    x.costs_of_parts(kind).learn(work::there, {1'000}, 3'000'000);  // of three passes
    x.costs_of_parts(kind).learn(work::here, {1'000}, 2'000'000);
  }
  EXPECT_EQ(x.place_groups(kind, 3), work::there);
  for (int i = 0; i < 10; ++i) x.costs_of_whole(kind).learn(work::there, {1'000}, 1'000'000);
  EXPECT_EQ(x.place_groups(kind, 3), work::here);
}

// Texts of which each third one is found: as many searches as there are such texts.
class searches : public placed_questions {
 protected:
  dataframe texts(int different, std::size_t rows) {
    dataframe frame(*home_);
    column all(*home_, column_type::text);
    for (int i = 0; i < different; ++i) all.append((i % 3 == 1 ? "yes" : "no") + std::to_string(i));
    std::vector<std::int32_t> codes(rows - all.size());
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::int32_t>(i) % different;
    all.append_numbers(std::span<const std::int32_t>(codes));
    frame.add("x", std::move(all));
    home_->evict_all();
    return frame;
  }
};

TEST_F(searches, for_several_codes_know_what_earlier_questions_cost) {
  const dataframe frame = texts(9, 3 << 20);  // three parts
  detail::part_costs& costs = frame["x"].costs_of_parts(detail::question_kind::pages);
  for (int i = 0; i < 2; ++i) {
    costs.learn(work::there, {1'000}, 1'000);
    costs.learn(work::here, {1'000}, 1e12);
  }
  const std::uint64_t before = fetched();
  EXPECT_EQ(frame["x"].rows_containing("yes").size(), std::size_t{1} << 20);
  EXPECT_LE(fetched(), before + 50) << "the rows that were found are few pages";
}

TEST_F(searches, for_several_codes_teach_later_questions) {
  const dataframe frame = texts(9, 5 << 20);
  const detail::part_costs& costs = frame["x"].costs_of_parts(detail::question_kind::pages);
  EXPECT_FALSE(costs.better());
  static_cast<void>(frame["x"].rows_containing("yes"));
  EXPECT_TRUE(costs.better());
}

// A tier that has pages, and no answers about rows.
class questions_that_nobody_answers : public heap::real_pager_test<> {
 protected:
  questions_that_nobody_answers() {
    runtime_options chosen = heap::small_runtime(16 * mib);
    chosen.far = "zmem:";
    home_ = std::make_unique<runtime>(chosen);
  }

  std::unique_ptr<runtime> home_;
};

TEST_F(questions_that_nobody_answers, do_not_teach_that_asking_is_nearly_free) {
  dataframe frame(*home_);
  column values(*home_, column_type::int64);
  std::vector<std::int64_t> some(1'000'000);
  for (std::size_t i = 0; i < some.size(); ++i) some[i] = static_cast<std::int64_t>(i * 2'654'435'761 % some.size());
  values.append_numbers(std::span<const std::int64_t>(some));
  frame.add("x", std::move(values));
  home_->evict_all();
  EXPECT_EQ(frame["x"].quantile(0.5), 499'999.5);
  const std::optional<double> asked = frame["x"].costs_of_parts(detail::question_kind::ranks).page_ns(work::there);
  EXPECT_GE(asked.value_or(1e9), 400) << "no page comes as fast";
}

// Numbers that are 0 to 3 in turn, in parts of 1024 pages, of which some are here.
class tallies_that_nobody_answers : public questions_that_nobody_answers {
 protected:
  static constexpr std::size_t pages_of_window = 1024;

  void make(std::size_t windows) {
    std::vector<std::int64_t> some(windows * pages_of_window * 512);
    for (std::size_t i = 0; i < some.size(); ++i) some[i] = static_cast<std::int64_t>(i % 4);
    all_.emplace(*home_);
    all_->append(some);
    home_->evict_all();
  }
  [[nodiscard]] auto tally(part_costs& costs) const {
    return detail::rank_questions(*all_, interval<std::int64_t>{0, 3}, &costs).tally();
  }
  [[nodiscard]] std::uint64_t fetched() const { return home_->statistics().fetched_pages; }
  void TearDown() override { all_.reset(); }

  std::optional<vector<std::int64_t>> all_;
};

TEST_F(tallies_that_nobody_answers, go_on_by_reading_once_half_was_read) {
  make(4);
  part_costs costs;
  for (int i = 0; i < 2; ++i) costs.learn(work::there, {1'000}, 1'000);  // two parts are read, then one is asked
  const std::uint64_t before = fetched();
  const auto counts = tally(costs);
  ASSERT_TRUE(counts);
  EXPECT_EQ(*counts, std::vector<std::uint64_t>(4, all_->size() / 4));
  EXPECT_LE(fetched(), before + 4 * pages_of_window + 100) << "none of them twice";
  EXPECT_LE(*costs.page_ns(work::there), 1) << "what nobody answered is no sample";
}

TEST_F(tallies_that_nobody_answers, are_given_up_before_much_was_read) {
  make(5);
  part_costs costs;
  for (int i = 0; i < 2; ++i) costs.learn(work::there, {1'000}, 1'000);
  const std::uint64_t before = fetched();
  EXPECT_FALSE(tally(costs));
  EXPECT_LE(fetched(), before + 2 * pages_of_window + 100) << "page by page may be cheaper than to read the rest";
}

TEST_F(tallies_that_nobody_answers, are_given_up_where_the_first_part_is_here) {
  make(3);
  std::vector<std::int64_t> some(pages_of_window * 512);
  all_->read(0, std::span<std::int64_t>(some));
  const std::uint64_t before = fetched();
  part_costs costs;
  EXPECT_FALSE(tally(costs));
  EXPECT_LE(fetched(), before + 100) << "reading it has cost nothing";
}

}  // namespace
}  // namespace far
