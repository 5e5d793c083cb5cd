#include "heap/hazard_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "base/backoff.h"
#include "heap/scope_records.h"

namespace far::heap {
namespace {

std::vector<std::uint64_t> log_of(const hazard_log& one) {
  std::vector<std::uint64_t> pages;
  one.for_each([&](std::uint64_t page) { pages.push_back(page); });
  return pages;
}

TEST(hazard_log, logs_each_page_once) {
  hazard_log one;
  for (unsigned round = 0; round < 3; ++round) {
    for (std::uint64_t page = 100; page < 110; ++page) one.hold(page);
  }
  EXPECT_EQ(one.held(), 10u);
  one.cut_back(4);
  EXPECT_EQ(log_of(one), (std::vector<std::uint64_t>{100, 101, 102, 103}));
  one.hold(105);
  EXPECT_EQ(log_of(one).back(), 105u);
  one.cut_back(0);
  EXPECT_TRUE(log_of(one).empty());
}

// Against a simple model: nested scopes, more pages than the tables have places, and pages that share places.
void agree_with_a_model(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  hazard_log one;
  std::vector<std::uint64_t> model;
  std::vector<std::size_t> scopes;
  const std::uint64_t different = 1 + random() % 200;
  const std::uint64_t places = 1 + random() % hazard_log::slot_count;
  const std::uint64_t pause = 20 + random() % 400;  // from one end of all scopes to the next
  for (unsigned step = 0; step < 5'000; ++step) {
    const std::uint64_t choice = random() % pause;
    if (choice == 0) {
      scopes.clear();
      one.cut_back(0);
      model.clear();
    } else if (choice == 1) {
      scopes.push_back(one.held());
    } else if (choice <= 3 && !scopes.empty()) {
      const std::size_t left = choice == 2 ? scopes.back() : scopes[random() % scopes.size()];
      while (!scopes.empty() && scopes.back() >= left) scopes.pop_back();
      one.cut_back(left);
      model.resize(left);
    } else {
      const std::uint64_t page = 1000 + random() % different * hazard_log::slot_count + random() % places;
      one.hold(page);
      if (std::find(model.begin(), model.end(), page) == model.end()) model.push_back(page);
    }
    ASSERT_EQ(one.held(), model.size()) << step;
    if (step % 64 == 0) {
      ASSERT_EQ(log_of(one), model) << step;
    }
  }
}

TEST(hazard_log, agrees_with_a_model) {
  for (std::uint64_t seed = 0; seed < 200 && !HasFailure(); ++seed) agree_with_a_model(seed);
}

// The protocol of hazard logs (docs/heap.md): either the reader sees that the page is leaving, or the evictor sees the
// reader.
TEST(hazard_log, a_page_never_leaves_under_a_reader) {
  constexpr std::uint64_t page = 77;
  constexpr unsigned rounds = 30'000;
  constexpr unsigned looks = 20;
  std::mt19937_64 random(1);
  std::atomic<bool> leaving{false};
  std::atomic<bool> gone{false};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> reads{0};
  std::vector<std::thread> readers;
  for (unsigned i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      borrowed_record mine;
      while (!stop.load(std::memory_order_relaxed)) {
        mine->hold(page);
        if (!leaving.load(std::memory_order_acquire)) {
          for (unsigned look = 0; look < looks; ++look) {
            wrong += gone.load(std::memory_order_relaxed);
            cpu_relax();
          }
          reads.fetch_add(1, std::memory_order_relaxed);
        }
        mine->cut_back(0);
      }
    });
  }
  unsigned evicted = 0;
  // Where readers rarely run, more rounds are needed for both to have had their turns.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (unsigned i = 0; i < rounds || ((evicted == 0 || reads == 0) && std::chrono::steady_clock::now() < deadline);
       ++i) {
    leaving.store(true, std::memory_order_relaxed);
    if (find_held({&page, 1}, nullptr).by_work == 0) {
      gone.store(true, std::memory_order_relaxed);
      ++evicted;
      for (unsigned look = 0; look < looks; ++look) cpu_relax();
      gone.store(false, std::memory_order_release);
    }
    leaving.store(false, std::memory_order_release);
    for (std::uint64_t pause = random() % looks; pause > 0; --pause) cpu_relax();
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(reads, 0u);
  EXPECT_GT(evicted, 0u);
}

}  // namespace
}  // namespace far::heap
