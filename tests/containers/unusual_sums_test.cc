// Sums of infinite numbers, NaN, zeros of both signs, and numbers whose sums overflow: the same bits wherever they are
// added, and those of a plain loop where the order does not matter. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "far/dataframe.h"
#include "far/runtime.h"
#include "far/vector.h"
#include "memory_server.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

using testing_support::memory_server;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t count = 200'000;  // some hundred pages

struct unusual {
  std::string name;
  std::function<double(std::size_t)> number;
  std::optional<double> sum;  // unless the order matters; NaN for any NaN
};

std::vector<unusual> all_unusual() {
  const auto one_of = [](std::size_t i, double first, double second) {
    return i == 7 ? first : i == count - 3 ? second : static_cast<double>(i % 5);
  };
  return {
      {"infinity", [=](std::size_t i) { return one_of(i, infinity, 1); }, infinity},
      {"minus infinity", [=](std::size_t i) { return one_of(i, -infinity, -infinity); }, -infinity},
      {"both", [=](std::size_t i) { return one_of(i, -infinity, infinity); }, nan},
      {"both in a page", [=](std::size_t i) { return i == 8 ? infinity : one_of(i, -infinity, 1); }, nan},
      {"NaN and both", [=](std::size_t i) { return i % 3 == 0 ? nan : one_of(i, -infinity, infinity); }, nan},
      {"NaN", [](std::size_t i) { return i % 2 == 0 ? nan : -2; }, -2.0 * (count / 2)},
      {"minus zeros", [](std::size_t) { return -0.0; }, 0.0},
      {"zeros", [](std::size_t i) { return i % 3 == 0 ? -0.0 : 0.0; }, 0.0},
      {"a page of NaN", [](std::size_t i) { return i < 1'000 ? nan : 1.0; }, count - 1'000.0},
      {"large", [](std::size_t) { return 1e308; }, infinity},
      {"large of both signs", [](std::size_t i) { return i / 3 % 2 == 0 ? 1e308 : -1e308; }, std::nullopt},
      {"large, first those of one sign", [](std::size_t i) { return i < count / 2 ? 1e308 : -1e308; }, std::nullopt},
      {"large together", [](std::size_t i) { return i / 512 % 50 < 27 ? 2e304 : -2e304; }, std::nullopt},
      {"thirds",
       [](std::size_t i) {
         return std::ldexp(static_cast<double>(i * 7919 % 1'000'003), static_cast<int>(i % 30)) / 3;
       },
       std::nullopt},
      {"the least", [](std::size_t) { return std::numeric_limits<double>::denorm_min(); },
       count * std::numeric_limits<double>::denorm_min()},
  };
}

void expect_bits(double got, double expected, const std::string& what) {
  EXPECT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(expected))
      << what << ": " << got << " and not " << expected;
}

class unusual_sums : public heap::far_tier_test {
 protected:
  // Of a vector: there, here, and of what has changed since it was there.
  template <typename T>
  void expect_vectors(runtime& home, const unusual& one) {
    std::vector<T> plain(count);
    for (std::size_t i = 0; i < count; ++i) plain[i] = static_cast<T>(one.number(i));
    vector<T> all(home, plain);
    const summary<T> local = all.summarize({}, work::here);
    home.evict_all();
    const summary<T> there = all.summarize();
    expect_bits(there.sum(), local.sum(), one.name);
    expect_bits(there.min(), local.min(), one.name);
    expect_bits(there.max(), local.max(), one.name);
    EXPECT_EQ(there.count(), local.count());
    all.write(count / 2, plain[count / 2]);
    expect_bits(all.summarize().sum(), local.sum(), one.name);
    if (!std::is_same_v<T, double> || !one.sum) return;
    if (std::isnan(*one.sum)) {
      EXPECT_TRUE(std::isnan(there.sum())) << one.name;
      return;
    }
    expect_bits(there.sum(), *one.sum, one.name);
    const auto is_number = [](T number) { return !std::isnan(number); };
    const auto found = std::partition(plain.begin(), plain.end(), is_number);
    expect_bits(std::accumulate(plain.begin(), found, 0.0), *one.sum, one.name + ", by std::accumulate");
  }

  // Of a column, and of its groups. A sum that is NaN is null in a column, as NaN is.
  void expect_columns(runtime& home, const unusual& one) {
    dataframe frame(home);
    std::vector<double> plain(count);
    std::vector<std::int64_t> keys(count);
    for (std::size_t i = 0; i < count; ++i) {
      plain[i] = one.number(i);
      keys[i] = static_cast<std::int64_t>(i % 2);
    }
    column key(home, column_type::int64);
    column real(home, column_type::float64);
    key.append_numbers(std::span<const std::int64_t>(keys));
    real.append_numbers(std::span<const double>(plain));
    const double known = std::get<double>(real.sum());
    expect_bits(known, vector<double>(home, plain).summarize().sum(), one.name);
    frame.add("key", std::move(key));
    frame.add("real", std::move(real));
    const auto grouped = [&](placement where) {
      home.evict_all();
      frame.place(where);
      return frame.group_by({"key"}, {{"real", aggregate::sum},
                                      {"real", aggregate::mean},
                                      {"real", aggregate::min},
                                      {"real", aggregate::max},
                                      {"real", aggregate::count}});
    };
    const dataframe there = grouped(placement::there);
    const dataframe here = grouped(placement::here);
    ASSERT_EQ(there.rows(), 2u);
    for (const std::string& name : there.names()) {
      for (std::size_t i = 0; i < 2; ++i) {
        const cell found = there[name].at(i);
        ASSERT_EQ(found, here[name].at(i)) << one.name << ": " << name;
        if (const auto* const number = std::get_if<double>(&found)) {
          expect_bits(*number, std::get<double>(here[name].at(i)), one.name);
        }
      }
    }
    if (!one.sum) return;
    // In a group, one of both infinite numbers may be missing.
    for (std::size_t i = 0; i < 2; ++i) {
      double sum = 0;
      bool is_any = false;
      for (std::size_t at = i; at < count; at += 2) {
        is_any |= !std::isnan(plain[at]);
        sum += std::isnan(plain[at]) ? 0 : plain[at];
      }
      const cell expected = std::isnan(sum) || !is_any ? cell(null) : cell(sum);
      EXPECT_EQ(there["real_sum"].at(i), expected) << one.name;
    }
  }
};

TEST_F(unusual_sums, are_the_same_everywhere) {
  for (const unusual& one : all_unusual()) {
    expect_vectors<double>(farheap("memory:"), one);
    expect_vectors<float>(farheap("memory:"), one);
    expect_columns(farheap("memory:"), one);
  }
}

TEST_F(unusual_sums, are_the_same_on_a_memory_server) {
  const memory_server server({});
  for (const unusual& one : all_unusual()) {
    expect_vectors<double>(farheap("tcp://" + server.address()), one);
    expect_vectors<float>(farheap("tcp://" + server.address()), one);
    expect_columns(farheap("tcp://" + server.address()), one);
  }
}

// Sums of integers have 128 bits until they are asked for.
TEST_F(unusual_sums, of_integers_are_exact_or_refused) {
  const memory_server server({});
  runtime& home = farheap("tcp://" + server.address());
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  dataframe frame(home);
  std::vector<std::int64_t> keys(count);
  std::vector<std::int64_t> plain(count);
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = static_cast<std::int64_t>(i % 2);
    plain[i] = i < count / 2 ? most : -most;
  }
  plain[3] = 5;
  column key(home, column_type::int64);
  column number(home, column_type::int64);
  key.append_numbers(std::span<const std::int64_t>(keys));
  number.append_numbers(std::span<const std::int64_t>(plain));
  frame.add("key", std::move(key));
  frame.add("number", std::move(number));
  for (const placement where : {placement::there, placement::here}) {
    home.evict_all();
    frame.place(where);
    EXPECT_EQ(frame["number"].sum(), cell(5 - most));
    const dataframe grouped = frame.group_by({"key"}, {{"number", aggregate::sum}});
    EXPECT_EQ(grouped["number_sum"].at(0), cell(std::int64_t{0}));
    EXPECT_EQ(grouped["number_sum"].at(1), cell(5 - most));
  }
  frame.append({0, most});
  frame.append({0, most});
  for (const placement where : {placement::there, placement::here}) {
    home.evict_all();
    frame.place(where);
    EXPECT_THROW(static_cast<void>(frame.group_by({"key"}, {{"number", aggregate::sum}})), std::overflow_error);
    EXPECT_THROW(static_cast<void>(frame["number"].sum()), std::overflow_error);
  }
}

}  // namespace
}  // namespace far
