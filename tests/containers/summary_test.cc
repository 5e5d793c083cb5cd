// Summaries of the numbers in containers, on far tiers that compute them and on others. Needs permission for
// userfaultfd.
#include "far/summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "far/array.h"
#include "far/runtime.h"
#include "far/vector.h"
#include "memory_server.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

using testing_support::memory_server;

class summaries : public heap::far_tier_test {
 protected:
  template <typename T>
  static T number(std::mt19937_64& random) {
    const std::uint64_t bits = random();
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(static_cast<std::int64_t>(bits)) / 1024;
    return static_cast<T>(bits);
  }
  template <typename T>
  static vector<T> filled(runtime& home, std::size_t count) {
    // A prime number of random ones, again and again: no two pages are the same.
    std::mt19937_64 random(count);
    std::vector<T> some(65'521);
    for (T& one : some) one = number<T>(random);
    vector<T> all(home);
    while (all.size() < count) all.append(std::span(some).first(std::min(some.size(), count - all.size())));
    return all;
  }
  // Says the same as a plain loop, which fetches.
  template <typename T>
  static void expect_right(const vector<T>& all, const interval<T>& within) {
    const summary<T> found = all.summarize(within);
    std::size_t count = 0;
    long double sum = 0;
    T least = std::numeric_limits<T>::max();
    T greatest = std::numeric_limits<T>::lowest();
    const scope here(all.home().home());
    for (const std::span<const T> part : all.chunks(here)) {
      for (const T one : part) {
        if (!(one >= within.lowest && one <= within.highest)) continue;
        ++count;
        sum += one;
        least = std::min(least, one);
        greatest = std::max(greatest, one);
      }
    }
    ASSERT_EQ(found.count(), count);
    if (count == 0) return;
    EXPECT_EQ(found.min(), least);
    EXPECT_EQ(found.max(), greatest);
    const auto mean = static_cast<double>(sum / static_cast<long double>(count));
    EXPECT_NEAR(found.mean(), mean, 1e-6 * std::abs(static_cast<double>(greatest)) + 1e-6);
  }
  // How many pages the far tier has reduced, and how many were fetched, since the last call.
  std::uint64_t reduced() { return since(&runtime_statistics::reduced_pages, reduced_); }
  std::uint64_t fetched() { return since(&runtime_statistics::fetched_pages, fetched_); }

 private:
  std::uint64_t since(std::uint64_t runtime_statistics::* counter, std::uint64_t& before) {
    const std::uint64_t now = home_->statistics().*counter;
    const std::uint64_t difference = now - before;
    before = now;
    return difference;
  }

  std::uint64_t reduced_ = 0;
  std::uint64_t fetched_ = 0;
};

template <typename T>
class summaries_of : public summaries {};
using all_types = testing::Types<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t,
                                 std::uint32_t, std::uint64_t, float, double>;
TYPED_TEST_SUITE(summaries_of, all_types);

// More than the budget: some pages are here, changed or not, and the others are not.
TYPED_TEST(summaries_of, numbers_of_every_type) {
  runtime& home = this->farheap("memory:");
  const auto all = this->template filled<TypeParam>(home, 21 * mib / sizeof(TypeParam) + 77);
  this->reduced();
  this->expect_right(all, {});
  EXPECT_GT(this->reduced(), 1'000u);
  this->expect_right(all, {.lowest = 2});
  this->expect_right(all, {.lowest = 3, .highest = 50});
  this->expect_right(all, {.lowest = 50, .highest = 3});
  home.validate();
}

TEST_F(summaries, of_few_numbers_and_of_none) {
  runtime& home = farheap("memory:");
  vector<std::int32_t> few(home);
  EXPECT_EQ(few.summarize().count(), 0u);
  EXPECT_EQ(few.summarize().sum(), 0);
  few.append(std::vector<std::int32_t>{-4, 7, 7});
  EXPECT_EQ(few.summarize().sum(), 10);
  EXPECT_EQ(few.summarize().min(), -4);
  EXPECT_EQ(few.summarize({.highest = 0}).count(), 1u);
  EXPECT_EQ(few.summarize({.highest = 0}).mean(), -4);
  // Groups of sixteen, which come and go alone; an array.
  vector<std::int64_t, 16> grouped(home);
  for (std::int64_t i = 0; i < 10'000; ++i) grouped.push_back(i);
  home.evict_all();
  EXPECT_EQ(grouped.summarize().sum(), 49'995'000);
  array<std::uint16_t, 100, 100> square(home);
  square.fill(3);
  home.evict_all();
  EXPECT_EQ(square.summarize().sum(), 30'000u);
}

TEST_F(summaries, say_that_a_sum_is_too_large) {
  runtime& home = farheap("memory:");
  vector<std::int64_t> large(home, 100'000, std::numeric_limits<std::int64_t>::max());
  home.evict_all();
  EXPECT_THROW(static_cast<void>(large.summarize().sum()), std::overflow_error);
  EXPECT_EQ(large.summarize().mean(), static_cast<double>(std::numeric_limits<std::int64_t>::max()));
  const vector<std::int64_t> low(home, 100'000, std::numeric_limits<std::int64_t>::lowest());
  EXPECT_THROW(static_cast<void>(low.summarize().sum()), std::overflow_error);
  // One too many goes, and then it fits.
  large.resize(1);
  EXPECT_EQ(large.summarize().sum(), std::numeric_limits<std::int64_t>::max());
}

// Bit for bit, whatever is here and whatever is there.
TEST_F(summaries, of_numbers_with_a_fraction_do_not_depend_on_where_they_are) {
  double all_local = 0;
  {
    const auto all = filled<double>(farheap("memory:", 64 * mib), 2'500'000);
    all_local = all.summarize().sum();
    EXPECT_EQ(reduced(), 0u);
    home_->evict_all();
    EXPECT_EQ(all.summarize().sum(), all_local);
    EXPECT_GT(reduced(), 4'500u);
  }
  const auto some = filled<double>(farheap("memory:"), 2'500'000);
  EXPECT_EQ(some.summarize().sum(), all_local);
}

TEST_F(summaries, of_numbers_on_a_memory_server_fetch_nothing) {
  const memory_server server({});
  runtime& home = farheap("tcp://" + server.address());
  const auto all = filled<std::int64_t>(home, 1'000'000);
  home.evict_all();
  static_cast<void>(reduced());
  static_cast<void>(fetched());
  const summary<std::int64_t> found = all.summarize({.lowest = 0});
  EXPECT_GT(reduced(), 1'950u);
  EXPECT_LT(fetched(), 20u);
  EXPECT_GT(found.count(), 475'000u);
  expect_right(all, {.lowest = 0});
}

// The other copy computes what the server that is gone would have, or the pages are fetched.
TEST_F(summaries, survive_a_server_of_two) {
  memory_server first({});
  const memory_server second({});
  runtime& home = farheap("tcp://" + first.address() + "," + second.address() + "?copies=2&timeout=1s");
  const auto all = filled<std::int64_t>(home, 750'000);
  home.evict_all();
  const summary<std::int64_t> before = all.summarize({.lowest = 5});
  first.kill();
  const summary<std::int64_t> after = all.summarize({.lowest = 5});
  EXPECT_EQ(after.count(), before.count());
  EXPECT_EQ(after.mean(), before.mean());
  EXPECT_EQ(after.min(), before.min());
  EXPECT_GT(reduced(), 1'250u);
}

TEST_F(summaries, of_a_far_tier_that_computes_nothing_fetch) {
  runtime& home = farheap("zmem:");
  const auto all = filled<std::uint32_t>(home, 5'000'000);
  expect_right(all, {.lowest = 10});
  EXPECT_EQ(reduced(), 0u);
}

// Neighbours in the budget come and go meanwhile, and what has changed counts.
TEST_F(summaries, while_others_write_and_pages_leave) {
  runtime& home = farheap("memory:?latency=5us");
  const auto all = filled<std::uint32_t>(home, 6'000'000);
  const summary<std::uint32_t> before = all.summarize();
  vector<std::uint64_t> others(home, 3'000'000);
  std::atomic<bool> ends{false};
  std::vector<task<void>> writers;
  for (std::size_t writer = 0; writer < 4; ++writer) {
    writers.push_back(home.spawn([&, writer] {
      for (std::size_t i = writer; !ends.load(); i = (i + 40'009) % others.size()) others.write(i, i);
    }));
  }
  for (int round = 0; round < 20; ++round) {
    const summary<std::uint32_t> now = all.summarize();
    EXPECT_EQ(now.count(), before.count());
    EXPECT_EQ(now.sum(), before.sum());
  }
  ends.store(true);
  for (task<void>& writer : writers) writer.join();
  // Every number that was written is counted, wherever it is by now.
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < others.size(); ++i) sum += others.read(i);
  EXPECT_EQ(others.summarize().sum(), sum);
  home.validate();
}

}  // namespace
}  // namespace far
