// Changes of ranges of containers that leave alone what they can: fill, copy_from, scatter. Needs permission for
// userfaultfd.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
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

struct triple {  // pages are no whole number of them
  std::array<std::uint64_t, 3> words{};
  bool operator==(const triple&) const = default;
  triple() = default;
  explicit(false) triple(std::uint64_t value) : words{value, ~value, value} {}
};

class ranges : public heap::far_tier_test {
 protected:
  std::uint64_t fetched() const { return home_->statistics().fetched_pages; }
  std::uint64_t evicted() const { return home_->statistics().evicted_pages; }

  template <typename T>
  static std::vector<T> some(std::size_t count, std::uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    std::vector<T> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(T(random()));
    return values;
  }
  template <typename Container, typename T>
  static void expect_same(const Container& all, const std::vector<T>& plain) {
    ASSERT_EQ(all.size(), plain.size());
    std::vector<T> got(plain.size());
    all.read(0, std::span<T>(got));
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], plain[i]) << i;
  }

  // Random changes, and the same of a local vector. Pages leave in between.
  template <typename Container, typename T>
  void change(Container& all, std::vector<T>& plain, unsigned rounds, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto count = plain.size();
    for (unsigned round = 0; round < rounds; ++round) {
      const std::size_t first = random() % count;
      const std::size_t extent =
          random() % (round % 2 == 0 ? count - first : std::min<std::size_t>(count - first, 900));
      switch (random() % 4) {
        case 0: {
          const T value = T(random() % 2 == 0 ? 0 : random());
          all.fill(first, extent, value);
          std::fill_n(plain.begin() + static_cast<std::ptrdiff_t>(first), extent, value);
          break;
        }
        case 1: {  // from one half to the other
          const std::size_t half = count / 2;
          const std::size_t length = std::min({extent, half - first % half, half});
          const std::size_t from = first % half;
          const std::size_t to = half + random() % (half - length + 1);
          all.copy_from(all, from, length, to);
          std::copy_n(plain.begin() + static_cast<std::ptrdiff_t>(from), length,
                      plain.begin() + static_cast<std::ptrdiff_t>(to));
          break;
        }
        case 2: {
          std::vector<std::size_t> indices(random() % 3'000);
          std::vector<T> values;
          for (std::size_t& index : indices) {
            index = round % 3 == 0 ? first : random() % count;
            values.push_back(T(random()));
            plain[index] = values.back();
          }
          all.scatter(indices, values);
          break;
        }
        default: {
          if (round % 5 == 0) home_->evict_all();
          const T value = T(random());
          all.write(first, value);
          plain[first] = value;
        }
      }
    }
    expect_same(all, plain);
    home_->validate();
  }
};

TEST_F(ranges, that_are_read_once_stay_where_they_are) {
  for (const std::string& way : {std::string("memory:"), std::string("memory:?latency=20us"), std::string("zmem:")}) {
    runtime& home = farheap(way);
    vector<std::uint64_t> mine(home, std::views::iota(std::uint64_t{0}, std::uint64_t{100'000}));
    home.evict_all();
    mine.write(5'000, 77);
    const std::uint64_t before = fetched();
    std::vector<std::uint64_t> found(90'001);
    mine.read(4'999, std::span(found), non_temporal);
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], i == 1 ? 77 : 4'999 + i) << way;
    EXPECT_EQ(fetched(), before) << way;
    mine.read(100'000, std::span<std::uint64_t>(), non_temporal);
    EXPECT_THROW(mine.read(99'999, std::span(found).first(2), non_temporal), std::out_of_range);
  }
}

TEST_F(ranges, equal_those_of_local_vectors) {
  runtime& home = farheap("memory:");
  auto plain = some<std::uint64_t>(3'000'001);
  vector<std::uint64_t> all(home, plain);
  change(all, plain, 60, 3);
  auto bytes = some<std::uint8_t>(20'000'000);
  vector<std::uint8_t> small(home, bytes);
  change(small, bytes, 40, 4);
  auto triples = some<triple>(900'000);
  vector<triple> odd(home, triples);
  change(odd, triples, 40, 5);
}

TEST_F(ranges, equal_those_of_local_vectors_in_groups_arrays_and_few_elements) {
  runtime& home = farheap("memory:");
  auto plain = some<std::uint64_t>(90'000);
  vector<std::uint64_t, 16> grouped(home, plain);
  change(grouped, plain, 60, 6);
  array<std::uint32_t, 300, 400> matrix(home);
  std::vector<std::uint32_t> rows(120'000);
  change(matrix, rows, 60, 7);
  auto few = some<std::uint64_t>(100);
  vector<std::uint64_t> little(home, few);
  change(little, few, 60, 8);
}

// What is overwritten as a whole is not fetched, and zeros take no room anywhere.
TEST_F(ranges, that_are_filled_are_not_fetched) {
  const memory_server server({});
  runtime& home = farheap("tcp://" + server.address());
  constexpr std::size_t count = 2'000'000;  // 3906 pages
  vector<std::uint64_t> all(home, some<std::uint64_t>(count));
  home.evict_all();
  std::uint64_t before = fetched();
  const std::uint64_t evicted_before = evicted();
  all.fill(0);
  EXPECT_LT(fetched(), before + 100);
  EXPECT_LT(evicted(), evicted_before + 100);
  EXPECT_EQ(all.summarize().sum(), 0u);
  EXPECT_EQ(all.read(1'234'567), 0u);
  before = fetched();
  all.fill(1'000, 1'900'000, 7);
  EXPECT_LT(fetched(), before + 100);
  EXPECT_EQ(all.summarize().sum(), 7 * 1'900'000u);
  EXPECT_EQ(all.read(999), 0u);
  EXPECT_EQ(all.read(1'901'000), 0u);
  home.evict_all();
  all.fill(all.read(50'000));
  EXPECT_EQ(all.summarize({.lowest = 7, .highest = 7}).count(), count);
  home.validate();
}

TEST_F(ranges, that_are_copied_stay_where_they_are) {
  const memory_server server({});
  runtime& home = farheap("tcp://" + server.address());
  const auto plain = some<std::uint64_t>(1'000'000);
  const vector<std::uint64_t> all(home, plain);
  vector<std::uint64_t> copy(home, plain.size(), 5);
  home.evict_all();
  const std::uint64_t before = fetched();
  copy.copy_from(all, 0, plain.size(), 0);
  EXPECT_LT(fetched(), before + 400) << "of 3900";
  expect_same(copy, plain);
  EXPECT_THROW(copy.copy_from(copy, 0, 10, 9), std::invalid_argument);
  EXPECT_THROW(copy.copy_from(all, 10, plain.size(), 0), std::out_of_range);
  EXPECT_THROW(copy.copy_from(all, 0, 10, plain.size() - 9), std::out_of_range);
  EXPECT_THROW(copy.fill(10, plain.size(), 1), std::out_of_range);
  EXPECT_THROW(copy.scatter(std::vector<std::size_t>{0, plain.size()}, std::vector<std::uint64_t>{1, 1}),
               std::out_of_range);
  for (const std::size_t count : {1u, 3u}) {
    EXPECT_THROW(copy.scatter(std::vector<std::size_t>{0, 1}, std::vector<std::uint64_t>(count, 1)),
                 std::invalid_argument);
  }
  expect_same(copy, plain);
}

TEST_F(ranges, with_two_copies_outlive_a_server) {
  memory_server first({});
  const memory_server second({});
  runtime& home = farheap("tcp://" + first.address() + "," + second.address() + "?copies=2&timeout=1s");
  auto plain = some<std::uint64_t>(2'500'000);
  vector<std::uint64_t> all(home, plain);
  change(all, plain, 20, 9);
  home.evict_all();
  first.kill();
  change(all, plain, 20, 10);
}

// Others write to the elements beside the range, in the same pages, and to another container.
TEST_F(ranges, change_beside_others_that_write) {
  runtime& home = farheap("memory:?latency=5us");
  constexpr std::size_t half = 400'000;
  vector<std::uint64_t> all(home, 2 * half, 1);
  vector<std::uint64_t> others(home, 3'000'000);
  std::atomic<bool> ends{false};
  std::vector<task<void>> writers;
  for (std::size_t writer = 0; writer < 4; ++writer) {
    writers.push_back(home.spawn([&, writer] {
      for (std::size_t i = writer; !ends.load(); i = (i + 40'009) % others.size()) {
        others.write(i, i);
        all.write(half + i % 700, i % 700);
        all.write(2 * half - 1 - i % 700, 5);
      }
    }));
  }
  for (std::uint64_t round = 1; round <= 12; ++round) {
    all.fill(0, half, round % 3 == 0 ? 0 : round);
    all.copy_from(all, 0, half - 1'400, half + 700);
    const std::uint64_t expected = round % 3 == 0 ? 0 : round;
    const auto found = all.summarize({.lowest = expected, .highest = expected});
    EXPECT_GE(found.count(), 2 * half - 2'500);
  }
  ends.store(true);
  for (task<void>& writer : writers) writer.join();
  for (std::size_t i = 0; i < 700; ++i) ASSERT_TRUE(all.read(half + i) == i || all.read(half + i) == 1) << i;
  home.validate();
}

TEST_F(ranges, that_are_evicted_wait_for_scopes_that_are_about_to_end) {
  runtime& home = farheap("memory:", 32 * mib);
  const vector<std::uint64_t> all(home, some<std::uint64_t>(8 * mib / 8));
  std::atomic<bool> is_open{false};
  std::thread other([&] {
    const scope here(home);
    const std::uint64_t& held = all.deref(here, 100'000);
    is_open = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(held, all.deref(here, 100'000));
  });
  while (!is_open.load()) std::this_thread::yield();
  home.evict_all();
  EXPECT_LT(home.statistics().local_bytes, mib);
  other.join();
  home.validate();
}

}  // namespace
}  // namespace far
