// Questions about the numbers of containers, beside plain loops, on far tiers that answer them and on others. Needs
// permission for userfaultfd.
#include "far/query.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/units.h"
#include "far/array.h"
#include "far/runtime.h"
#include "far/vector.h"
#include "memory_server.h"
#include "plain_answers.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

using testing_support::memory_server;

class queries : public heap::far_tier_test {
 protected:
  // Many equal ones, and some of all sizes.
  template <typename T>
  static std::vector<T> some(std::size_t count) {
    std::mt19937_64 random(count);
    std::vector<T> numbers(count);
    for (T& number : numbers) {
      const std::uint64_t bits = random();
      const std::uint64_t kind = random() % 8;
      if constexpr (std::is_floating_point_v<T>) {
        number = static_cast<T>(static_cast<std::int64_t>(bits) >> 40) / 16;
        if (kind == 0) number = std::numeric_limits<T>::quiet_NaN();
        if (kind == 1) number = bits % 2 == 0 ? T{0} : -T{0};
        if (kind == 2) number = static_cast<T>(1) / number;
        if (kind == 3) number = static_cast<T>(static_cast<int>(bits % 50) - 25);
      } else {
        number = static_cast<T>(kind < 4 ? bits % 50 : bits);
      }
    }
    return numbers;
  }

  using answered = test::plain_answers;
  using any_number = test::any_number;
  static constexpr std::array fractions = test::fractions_of_quantiles;

  template <typename T>
  static std::vector<any_number> widened(const std::vector<T>& numbers) {
    return {numbers.begin(), numbers.end()};
  }

  template <typename T>
  static answered ask(const vector<T>& all, const interval<T>& within) {
    answered got;
    const vector<std::size_t> selected = select(all, within);
    got.selected.resize(selected.size());
    selected.read(0, std::span<std::size_t>(got.selected));
    if constexpr (std::is_integral_v<T>) got.tallied = tally(all, interval<T>{T{3}, T{90}});
    got.largest = widened(largest(all, 1000, within));
    got.smallest = widened(smallest(all, 1000, within));
    got.distinct = widened(distinct(all, within));
    std::vector<T> gathered(selected.size());
    all.gather(got.selected, std::span<T>(gathered));
    got.gathered = widened(gathered);
    for (const double fraction : fractions) {
      if (const auto one = quantile(all, fraction, within)) got.quantiles.push_back(*one);
    }
    return got;
  }

  template <typename T>
  static answered ask_plainly(const std::vector<T>& plain, const interval<T>& within) {
    return test::ask_plainly(widened(plain), within.lowest, within.highest, std::is_integral_v<T>);
  }

  // Bit for bit, so that -0 is not 0.
  template <typename Number>
  static void expect_same(const std::vector<Number>& got, const std::vector<Number>& expected, const char* what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const bool is_same =
          got[i] == expected[i] && std::signbit(any_number(got[i])) == std::signbit(any_number(expected[i]));
      if (!is_same) FAIL() << what << " " << i << ": " << got[i] << " and not " << expected[i];
    }
  }
  static void expect_same(const answered& got, const answered& expected) {
    expect_same(got.selected, expected.selected, "selected");
    expect_same(got.tallied, expected.tallied, "tallied");
    expect_same(got.largest, expected.largest, "largest");
    expect_same(got.smallest, expected.smallest, "smallest");
    expect_same(got.distinct, expected.distinct, "distinct");
    expect_same(got.gathered, expected.gathered, "gathered");
    expect_same(got.quantiles, expected.quantiles, "quantiles");
  }
  template <typename T>
  static void expect_right(const vector<T>& all, const std::vector<T>& plain, const interval<T>& within) {
    expect_same(ask(all, within), ask_plainly(plain, within));
  }

  std::uint64_t reduced() const { return home_->statistics().reduced_pages; }
};

template <typename T>
class queries_of : public queries {};
using all_types = testing::Types<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t,
                                 std::uint32_t, std::uint64_t, float, double>;
TYPED_TEST_SUITE(queries_of, all_types);

// Some pages are here, changed or not, and the others are not.
TYPED_TEST(queries_of, numbers_of_every_type_equal_plain_loops) {
  using T = TypeParam;
  runtime& home = this->farheap("memory:");
  auto plain = this->template some<T>(mib / 2 / sizeof(T) + 77);
  vector<T> all(home, plain);
  home.evict_all();
  const std::uint64_t before = this->reduced();
  this->expect_right(all, plain, {});
  EXPECT_GT(this->reduced(), before + 625u);
  for (std::size_t i = 0; i < plain.size(); i += 25'003) {
    plain[i] = T{17};
    all.write(i, T{17});
    static_cast<void>(all.read((i + 5'000) % plain.size()));
  }
  this->expect_right(all, plain, {T{2}, T{20}});
  this->expect_right(all, plain, {T{50}, T{3}});
  home.validate();
}

TEST_F(queries, of_few_numbers_and_of_none) {
  runtime& home = farheap("memory:");
  vector<std::int32_t> few(home);
  expect_right(few, {}, {});
  EXPECT_EQ(median(few), std::nullopt);
  few.append(std::vector<std::int32_t>{5, -4, 7, 7});
  EXPECT_EQ(median(few), 6.0);
  EXPECT_EQ(largest(few, 2), (std::vector<std::int32_t>{7, 7}));
  EXPECT_EQ(smallest(few, 3), (std::vector<std::int32_t>{-4, 5, 7}));
  EXPECT_EQ(distinct(few), (std::vector<std::int32_t>{-4, 5, 7}));
  EXPECT_EQ(tally(few, {-5, -3}), (std::vector<std::uint64_t>{0, 1, 0}));
  EXPECT_EQ(select(few, {5, 6}).read(0), 0u);
  // Groups of sixteen, which come and go alone; an array.
  std::vector<std::int64_t> plain(10'000);
  vector<std::int64_t, 16> grouped(home);
  for (std::int64_t i = 0; i < 10'000; ++i) grouped.push_back(i);
  home.evict_all();
  EXPECT_EQ(median(grouped), 4999.5);
  EXPECT_EQ(select(grouped, {.lowest = 9'000}).size(), 1'000u);
  std::vector<std::int64_t> got(3);
  grouped.gather(std::vector<std::size_t>{9'999, 4, 5}, std::span<std::int64_t>(got));
  EXPECT_EQ(got, (std::vector<std::int64_t>{9'999, 4, 5}));
  // Backwards, several times, and across the ends of pages.
  vector<std::int64_t> whole(home);
  for (std::int64_t i = 0; i < 10'000; ++i) whole.push_back(i);
  home.evict_all();
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < 5'000; ++i) indices.push_back((i / 7 * 9'973 + 10'000 - i % 7) % 10'000);
  std::vector<std::int64_t> many(indices.size());
  whole.gather(indices, std::span<std::int64_t>(many));
  for (std::size_t i = 0; i < many.size(); ++i) ASSERT_EQ(many[i], static_cast<std::int64_t>(indices[i])) << i;
  array<std::uint16_t, 100, 100> square(home);
  square.fill(3);
  home.evict_all();
  EXPECT_EQ(tally(square, {2, 4}), (std::vector<std::uint64_t>{0, 10'000, 0}));
}

TEST_F(queries, refuse_what_makes_no_sense) {
  runtime& home = farheap("memory:");
  vector<std::int32_t> few(home, std::vector<std::int32_t>{1, 2, 3});
  EXPECT_THROW(static_cast<void>(quantile(few, 1.5)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(quantile(few, std::numeric_limits<double>::quiet_NaN())), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(tally(few, {})), std::invalid_argument);
  std::vector<std::int32_t> into(2, -1);
  EXPECT_THROW(few.gather(std::vector<std::size_t>{1, 3}, std::span<std::int32_t>(into)), std::out_of_range);
  EXPECT_EQ(into, (std::vector<std::int32_t>{-1, -1})) << "nothing was copied";
  for (const std::size_t count : {1u, 3u}) {
    const std::vector<std::size_t> indices(count, 0);
    EXPECT_THROW(few.gather(indices, std::span<std::int32_t>(into)), std::invalid_argument) << count;
    EXPECT_EQ(into, (std::vector<std::int32_t>{-1, -1})) << "nothing was copied";
  }
  EXPECT_EQ(tally(few, {-40'000, 25'535}).size(), 65'536u);
}

template <typename T>
class tallies : public queries {};
using longest_integers = testing::Types<std::uint64_t, std::int64_t>;
TYPED_TEST_SUITE(tallies, longest_integers);

// In the last part of an interval is one number alone, or several; servers count them.
TYPED_TEST(tallies, end_with_the_greatest_number_there_is) {
  constexpr TypeParam greatest = std::numeric_limits<TypeParam>::max();
  runtime& home = this->farheap("memory:");
  std::vector<TypeParam> plain(100'000, 5);
  for (std::size_t i = 0; i < plain.size(); i += 3) plain[i] = static_cast<TypeParam>(greatest - i % 2);
  const vector<TypeParam> all(home, plain);
  const auto times = static_cast<std::uint64_t>(std::ranges::count(plain, greatest));
  for (const std::size_t before : {0u, 1u, 255u, 256u}) {
    home.evict_all();
    const std::uint64_t reduced = this->reduced();
    const std::vector<std::uint64_t> counts = tally(all, {static_cast<TypeParam>(greatest - before), greatest});
    ASSERT_EQ(counts.size(), before + 1);
    EXPECT_EQ(counts.back(), times) << before;
    if (before > 0) {
      EXPECT_EQ(counts[before - 1], 33'334 - times) << before;
    }
    EXPECT_GT(this->reduced(), reduced + 100) << before;
  }
}

TEST_F(queries, have_extreme_numbers) {
  runtime& home = farheap("memory:");
  const std::vector<std::uint64_t> ends = {0, ~std::uint64_t{0}, ~std::uint64_t{0} - 1};
  EXPECT_EQ(largest(vector<std::uint64_t>(home, ends), 2), (std::vector{~std::uint64_t{0}, ~std::uint64_t{0} - 1}));
  EXPECT_EQ(tally(vector<std::uint64_t>(home, ends), {~std::uint64_t{0} - 300, ~std::uint64_t{0}}).back(), 1u);
  const double infinity = std::numeric_limits<double>::infinity();
  const double least = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(detail::number_up_to_key<double>(detail::key_of(0.0) - 1), -least) << "in between is only -0";
  std::vector<double> numbers = {-infinity, infinity, infinity, -0.0, least, -least};
  for (int i = 0; i < 10'000; ++i) numbers.push_back(i % 2 == 0 ? -least : 0.0);
  const vector<double> all(home, numbers);
  EXPECT_EQ(median(all), 0.0);
  EXPECT_EQ(quantile(all, 1), infinity);
  EXPECT_EQ(distinct(all), (std::vector{-infinity, -least, 0.0, least, infinity}));
  EXPECT_EQ(largest(all, 4), (std::vector{infinity, infinity, least, 0.0}));
  EXPECT_EQ(smallest(all, 3), (std::vector{-infinity, -least, -least}));
  EXPECT_EQ(smallest(all, 5'003).back(), 0.0);
  EXPECT_EQ(smallest(all, 5'002).back(), -least);
}

// Numbers that change between the passes of a question, which writers must not do.
struct changing {
  using value_type = double;
  const vector<double>& before;
  const vector<double>& after;

  [[nodiscard]] std::size_t size() const { return before.size(); }
  [[nodiscard]] const tag& home() const { return before.home(); }
  void read(std::size_t first, std::span<double> into) const { after.read(first, into); }
  [[nodiscard]] summary<double> summarize(const interval<double>& within = {}) const {
    return before.summarize(within);
  }
  template <typename Visit>
  void visit_answers(const detail::reduction& how, Visit visit) const {
    after.visit_answers(how, std::move(visit));
  }
};

TEST_F(queries, about_numbers_that_change_come_to_an_end) {
  runtime& in = farheap("memory:");
  vector<double> before(in);
  vector<double> nothing(in);
  vector<double> few(in);
  for (int i = 0; i < 20'000; ++i) {
    before.push_back(i);
    nothing.push_back(std::numeric_limits<double>::quiet_NaN());
    few.push_back(i % 1000 == 0 ? i : std::numeric_limits<double>::quiet_NaN());
  }
  for (const vector<double>* const after : {&nothing, &few}) {
    const changing numbers{before, *after};
    for (const double fraction : {0.0, 0.3, 0.5, 0.99, 1.0}) {
      const std::optional<double> found = quantile(numbers, fraction);
      ASSERT_TRUE(found.has_value());
      EXPECT_TRUE(*found >= 0 && *found <= 20'000) << *found;
    }
  }
}

TEST_F(queries, on_memory_servers_with_copies_stripes_and_parity_fetch_nothing) {
  const memory_server first({});
  const memory_server second({});
  const memory_server third({});
  const std::string addresses = first.address() + "," + second.address() + "," + third.address();
  const auto plain = some<double>(150'000);
  const answered expected_of_some = ask_plainly(plain, {-30, 1'000});
  const answered expected_of_all = ask_plainly(plain, {});
  for (const std::string& way : {"tcp://" + first.address(), "tcp://" + addresses + "?copies=2",
                                 "tcp://" + addresses + "?copies=1", "tcp://" + addresses + "?parity=2+1"}) {
    runtime& home = farheap(way);
    const vector<double> all(home, plain);
    home.evict_all();
    const runtime_statistics before = home.statistics();
    EXPECT_TRUE(median(all).has_value());
    EXPECT_EQ(select(all, {.lowest = 1e6, .highest = 1e5}).size(), 0u);
    EXPECT_GT(home.statistics().reduced_pages, before.reduced_pages + 750) << way;
    EXPECT_LT(home.statistics().fetched_pages, before.fetched_pages + 25) << way;
    expect_same(ask(all, {-30, 1'000}), expected_of_some);
    expect_same(ask(all, {}), expected_of_all);
  }
}

// Questions about 16 pages at a time, of which one now and then is here and changed, or lies elsewhere.
TEST_F(queries, about_ranks_take_few_passes_on_one_to_three_servers) {
  const memory_server first({});
  const memory_server second({});
  const memory_server third({});
  std::string addresses = "tcp://" + first.address();
  std::mt19937_64 random(3);
  std::vector<double> plain(300'000);
  for (double& one : plain) one = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 30) - 40);
  for (const memory_server* const more : {&second, &third, static_cast<const memory_server*>(nullptr)}) {
    runtime& home = farheap(addresses);
    vector<double> all(far::tag(home).side_by_side(7), plain);
    home.evict_all();
    for (std::size_t i = 0; i < plain.size(); i += 70'001) {
      plain[i] = -static_cast<double>(i);
      all.write(i, plain[i]);
    }
    std::vector<double> sorted = plain;
    std::ranges::sort(sorted);
    const runtime_statistics before = home.statistics();
    EXPECT_EQ(median(all), sorted[149'999] / 2 + sorted[150'000] / 2);
    EXPECT_EQ(quantile(all, 0.25), sorted[74'999] + (sorted[75'000] - sorted[74'999]) * 0.75);
    EXPECT_EQ(largest(all, 2), (std::vector{sorted[299'999], sorted[299'998]}));
    // Each in a pass for the bounds, one or two that count, and one that lists, where 64 buckets take eight; the
    // largest are listed besides.
    const std::uint64_t pages = plain.size() * sizeof(double) / page_bytes;
    EXPECT_GT(home.statistics().reduced_pages, before.reduced_pages + 8 * pages) << addresses;
    EXPECT_LT(home.statistics().reduced_pages, before.reduced_pages + 15 * pages) << addresses;
    if (more != nullptr) addresses += "," + more->address();
  }
}

// What is here is counted here, and is in nobody's way.
TEST_F(queries, about_pages_of_which_others_are_here_fetch_nothing) {
  const memory_server first({});
  const memory_server second({});
  for (const std::string& tier : {first.address(), first.address() + "," + second.address()}) {
    runtime& home = farheap("tcp://" + tier);
    const auto plain = some<double>(300'000);
    vector<double> all(home, plain);
    home.evict_all();
    constexpr std::size_t on_a_page = page_bytes / sizeof(double);
    for (std::size_t i = 0; i < plain.size(); i += 2 * on_a_page) static_cast<void>(all.read(i));
    const std::uint64_t away = plain.size() / on_a_page / 2;
    runtime_statistics before = home.statistics();
    const auto expect_passes = [&](unsigned least, unsigned most, const char* what) {
      const runtime_statistics after = home.statistics();
      EXPECT_GE(after.reduced_pages, before.reduced_pages + least * away - 20) << what << " " << tier;
      EXPECT_LE(after.reduced_pages, before.reduced_pages + most * away + 20) << what << " " << tier;
      EXPECT_LT(after.fetched_pages, before.fetched_pages + 10) << what << " " << tier;
      before = home.statistics();
    };
    EXPECT_TRUE(median(all).has_value());
    expect_passes(3, 4, "median");
    EXPECT_EQ(largest(all, 10).size(), 10u);
    expect_passes(2, 5, "largest");
    expect_right(all, plain, {});
  }
}

// Of doubles that are few different ones, or all different, or nothing: each kind of search comes to the same end.
TEST_F(queries, about_ranks_of_all_shapes_equal_sorted_numbers) {
  const memory_server server({});
  runtime& home = farheap("tcp://" + server.address());
  std::mt19937_64 random(9);
  const std::size_t count = 100'000;
  std::vector<std::vector<double>> shapes(6, std::vector<double>(count));
  for (std::size_t i = 0; i < count; ++i) {
    shapes[0][i] = static_cast<double>(i % 1000);
    shapes[1][i] = static_cast<double>(i);  // in order
    shapes[2][i] = i == 77'777 ? 1e300 : static_cast<double>(random() % 3) / 7;
    shapes[3][i] = std::ldexp(1.0, static_cast<int>(random() % 2000) - 1000) * (i % 2 == 0 ? 1 : -1);
    shapes[4][i] = i < count / 2 ? 5 : 6 + static_cast<double>(random() % 1'000'003) / 1e9;
    shapes[5][i] = i % 3 == 0 ? std::numeric_limits<double>::quiet_NaN() : -0.0;
  }
  for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
    const std::vector<double>& plain = shapes[shape];
    const vector<double> all(home, plain);
    home.evict_all();
    std::vector<double> sorted;
    for (const double one : plain) {
      if (!std::isnan(one)) sorted.push_back(one == 0 ? 0.0 : one);
    }
    std::ranges::sort(sorted);
    for (const double fraction : {0.0, 0.001, 0.3, 0.5, 0.95, 1.0}) {
      const double rank = fraction * static_cast<double>(sorted.size() - 1);
      const auto at = static_cast<std::size_t>(rank);
      const double low = sorted[at];
      const double high = sorted[std::min(at + 1, sorted.size() - 1)];
      const double share = rank - static_cast<double>(at);
      const double expected = share == 0.5 ? low / 2 + high / 2 : low == high ? low : low + (high - low) * share;
      EXPECT_EQ(quantile(all, fraction), expected) << shape << " " << fraction;
    }
    std::vector<double> outer = sorted;
    std::ranges::reverse(outer);
    outer.resize(500);
    expect_same(largest(all, 500), outer, "largest");
    outer.assign(sorted.begin(), sorted.begin() + 500);
    expect_same(smallest(all, 500), outer, "smallest");
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    if (sorted.size() < 5'000) expect_same(distinct(all), sorted, "distinct");
  }
}

// None, few, many or all of them, here and there or in runs, of each size: what servers pack differs, and what is found
// does not.
template <typename T>
void expect_selections(runtime& home, const std::string& where) {
  // Up to each of them: a thousandth of the numbers, a hundredth, a tenth, and so on.
  constexpr std::array bounds = {1u, 10u, 100u, 500u, 900u, 1000u};
  const std::size_t count = 480'000 / sizeof(T);
  std::mt19937_64 random(11);
  for (const bool is_in_runs : {false, true}) {
    std::vector<T> plain(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t place = is_in_runs ? (i / 1000 % 2 == 0 ? i * 1000 / count : 999) : random() % 1000;
      plain[i] = static_cast<T>(std::ranges::upper_bound(bounds, place) - bounds.begin());
    }
    const vector<T> all(home, plain);
    home.evict_all();
    const runtime_statistics before = home.statistics();
    for (const interval<T>& within : {interval<T>{9, 9}, interval<T>{0, 0}, interval<T>{0, 1}, interval<T>{0, 2},
                                      interval<T>{0, 3}, interval<T>{0, 4}, interval<T>{0, 5}}) {
      std::vector<std::size_t> expected;
      for (std::size_t i = 0; i < count; ++i) {
        if (plain[i] >= within.lowest && plain[i] <= within.highest) expected.push_back(i);
      }
      const vector<std::size_t> selected = select(all, within);
      std::vector<std::size_t> got(selected.size());
      selected.read(0, std::span<std::size_t>(got));
      ASSERT_EQ(got, expected) << where << ", up to " << +within.highest << (is_in_runs ? " in runs" : "");
    }
    EXPECT_GT(home.statistics().reduced_pages, before.reduced_pages + 7 * 100) << where;
  }
}

TEST_F(queries, select_the_same_at_all_densities_from_one_server_and_three) {
  const memory_server first({});
  const memory_server second({});
  const memory_server third({});
  const std::string three = first.address() + "," + second.address() + "," + third.address();
  for (const std::string& way : {"tcp://" + first.address(), "tcp://" + three, "tcp://" + three + "?copies=2"}) {
    expect_selections<double>(farheap(way), way);
    expect_selections<std::int32_t>(farheap(way), way);
    expect_selections<std::uint8_t>(farheap(way), way);
  }
}

// One of two servers ends while they are asked: each answer is whole, or is found elsewhere.
TEST_F(queries, go_on_when_a_server_of_two_ends_meanwhile) {
  const auto plain = some<std::int64_t>(300'000);
  memory_server first({});
  const memory_server second({});
  runtime& home = farheap("tcp://" + first.address() + "," + second.address() + "?copies=2&timeout=1s");
  const vector<std::int64_t> all(home, plain);
  home.evict_all();
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    first.kill();
  });
  expect_right(all, plain, {});
  killer.join();
  expect_right(all, plain, {2, 30});
}

// The other copy answers what the server that is gone would have, or the pages are fetched.
TEST_F(queries, survive_a_server_of_two) {
  memory_server first({});
  const memory_server second({});
  runtime& home = farheap("tcp://" + first.address() + "," + second.address() + "?copies=2&timeout=1s");
  const auto plain = some<std::int32_t>(1'000'000);
  const vector<std::int32_t> all(home, plain);
  home.evict_all();
  first.kill();
  expect_right(all, plain, {5, 30});
}

TEST_F(queries, of_a_far_tier_that_computes_nothing_fetch) {
  runtime& home = farheap("zmem:");
  const auto plain = some<std::uint64_t>(2'250'000);
  const vector<std::uint64_t> all(home, plain);
  expect_right(all, plain, {10, 30});
  EXPECT_EQ(reduced(), 0u);
}

}  // namespace
}  // namespace far
