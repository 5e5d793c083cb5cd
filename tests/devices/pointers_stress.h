// Objects of a device under many threads, while copies leave and others are written back.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "far/device.h"
#include "far/device_ptr.h"
#include "far/runtime.h"
#include "far/scope.h"

namespace far::testing_support {

// Its bytes depend on its number and its count.
struct record {
  std::uint64_t number = 0;
  std::uint64_t count = 0;
  std::uint64_t filled[30] = {};
};

[[nodiscard]] inline record record_of(std::uint64_t number, std::uint64_t count) {
  record one{number, count, {}};
  for (std::uint64_t i = 0; i < 30; ++i) one.filled[i] = number * 31 + i;
  return one;
}

[[nodiscard]] inline bool is_whole(const record& one, std::uint64_t number) {
  record right = record_of(number, one.count);
  return std::memcmp(&right, &one, sizeof one) == 0;
}

[[nodiscard]] inline record record_at(device& at, std::uint64_t number) {
  const std::vector<std::byte> bytes = at.read(number);
  record one;
  EXPECT_EQ(bytes.size(), sizeof one);
  if (bytes.size() == sizeof one) std::memcpy(&one, bytes.data(), sizeof one);
  return one;
}

inline void put_record(device& at, std::uint64_t number, std::uint64_t count) {
  const record one = record_of(number, count);
  at.write(number, std::as_bytes(std::span(&one, 1)));
}

// Waits for what another thread does, for up to a minute and a half.
template <typename Condition>
[[nodiscard]] bool comes_true(Condition condition) {
  for (int i = 0; i < 9000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

// Each thread adds to shared records, and has records of its own that come and go. `disturb` is called all the while.
template <typename Disturb>
void use_together(runtime& farheap, device& at, std::uint64_t records, unsigned steps, Disturb disturb) {
  constexpr unsigned workers = 4;
  constexpr std::uint64_t own = 1'000'000;
  for (std::uint64_t i = 0; i < records; ++i) put_record(at, i, 0);
  device_objects<record> all(farheap, at);
  std::vector<std::atomic<std::uint64_t>> added(records);
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<unsigned> working{workers};
  const auto work = [&](unsigned worker) {
    std::mt19937_64 random(worker);
    std::vector<std::uint64_t> mine(20);  // their counts; 0: there is none
    // On a busy machine it may take longer until copies have left and come back.
    const auto has_seen_enough = [&](unsigned step) {
      return step >= steps && (all.statistics().fetched > records || step >= 100 * steps);
    };
    for (unsigned step = 0; !has_seen_enough(step); ++step) {
      const std::uint64_t number = random() % records;
      {
        const scope here(farheap);
        record& one = all.at(number).deref_mut(here);
        std::atomic_ref(one.count).fetch_add(1, std::memory_order_relaxed);
        wrong += one.number == number && one.filled[29] == number * 31 + 29 ? 0u : 1u;
      }
      added[number].fetch_add(1, std::memory_order_relaxed);
      const std::uint64_t which = random() % mine.size();
      const device_ptr<record> private_one = all.at(own * (worker + 1) + which);
      if (mine[which] == 0) {
        private_one.write(record_of(private_one.object(), mine[which] = step + 1));
      } else {
        const record got = private_one.read();
        wrong += is_whole(got, private_one.object()) && got.count == mine[which] ? 0u : 1u;
        if (step % 3 == 0) {
          private_one.erase();
          mine[which] = 0;
        }
      }
      if (step % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    for (std::uint64_t which = 0; which < mine.size(); ++which) {
      if (mine[which] != 0) all.at(own * (worker + 1) + which).erase();
    }
    --working;
  };
  std::vector<std::thread> threads;
  for (unsigned worker = 0; worker < workers; ++worker) threads.emplace_back(work, worker);
  while (working.load() > 0) disturb(all);
  for (std::thread& one : threads) one.join();
  all.flush();
  EXPECT_EQ(wrong.load(), 0u);
  for (std::uint64_t i = 0; i < records; ++i) {
    const record there = record_at(at, i);
    ASSERT_TRUE(is_whole(there, i)) << i;
    ASSERT_EQ(there.count, added[i].load()) << i;
  }
  EXPECT_THROW(static_cast<void>(at.read(own)), device_error);
  EXPECT_GT(all.statistics().fetched, records);
  EXPECT_GT(all.statistics().written_back, 0u);
}

}  // namespace far::testing_support
