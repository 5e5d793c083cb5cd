#include "backend/memory/memory_backend.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "backend/memory/emulated_link.h"

namespace far::backend {
namespace {

TEST(emulated_link, latency_and_bandwidth_add_up) {
  emulated_link link(5000, 8);  // 8 Gb/s: one byte a nanosecond
  EXPECT_FALSE(link.instant());
  EXPECT_EQ(link.completion_ns(operation::read, 4096, 1'000'000), 1'000'000u + 4096 + 5000);
  EXPECT_EQ(link.completion_ns(operation::read, 4096, 1'000'000), 1'000'000u + 2 * 4096 + 5000) << "queues behind it";
  EXPECT_EQ(link.completion_ns(operation::write, 100, 1'000'000), 1'000'000u + 100 + 5000) << "the other direction";
  EXPECT_EQ(link.completion_ns(operation::read, 10, 2'000'000), 2'000'000u + 10 + 5000) << "the link was idle again";
}

TEST(emulated_link, without_figures_it_is_instant) {
  EXPECT_TRUE(emulated_link(0, 0).instant());
  EXPECT_FALSE(emulated_link(1, 0).instant());
  EXPECT_FALSE(emulated_link(0, 1).instant());
}

TEST(memory_backend, tells_what_it_promises) {
  const auto plain = memory_backend::create({}).value();
  EXPECT_EQ(plain->describe(), "memory:");
  EXPECT_GT(plain->report().total_slots, 0u);
  const auto slow =
      memory_backend::create({.capacity_bytes = mib, .latency_ns = 5000, .gigabits_per_second = 8}).value();
  EXPECT_EQ(slow->expected_speed().latency_ns, 5000u);
  EXPECT_EQ(slow->expected_speed().bytes_per_second, 1'000'000'000u);
  EXPECT_EQ(slow->report().total_slots, 256u);
  EXPECT_EQ(slow->direct(0), nullptr) << "emulated latency must not be bypassed";
}

TEST(memory_backend, a_transfer_is_not_complete_before_its_time) {
  constexpr std::uint64_t latency_ns = 20'000'000;
  const auto slow = memory_backend::create({.capacity_bytes = mib, .latency_ns = latency_ns}).value();
  const auto queue = slow->open_channel(4).value();
  const slot_id slot = slow->allocate(1).value();
  std::array<std::byte, page_bytes> bytes{};
  timespec before{};
  clock_gettime(CLOCK_MONOTONIC, &before);
  const request one{.op = operation::write, .slot = slot, .buffer = bytes.data()};
  ASSERT_EQ(queue->submit(std::span(&one, 1)), 1u);
  completion done;
  while (queue->poll(std::span(&done, 1)) == 0) queue->wait(1'000'000'000);
  timespec after{};
  clock_gettime(CLOCK_MONOTONIC, &after);
  const auto passed_ns = (after.tv_sec - before.tv_sec) * 1'000'000'000 + (after.tv_nsec - before.tv_nsec);
  EXPECT_GE(passed_ns, static_cast<long>(latency_ns));
}

std::size_t frames_of(const std::byte* begin, std::size_t pages) {
  std::vector<unsigned char> present(pages);
  const auto address = const_cast<std::byte*>(begin);
  EXPECT_EQ(mincore(address, pages * page_bytes, present.data()), 0);
  return static_cast<std::size_t>(std::count_if(present.begin(), present.end(), [](unsigned char c) { return c & 1; }));
}

TEST(memory_backend, frames_of_many_free_slots_go_back_to_the_kernel) {
  constexpr std::size_t count = 160 * mib / page_bytes;
  const auto tested = memory_backend::create({.capacity_bytes = gib}).value();
  const auto queue = tested->open_channel(4).value();
  const slot_id first = tested->allocate(count).value();
  std::vector<std::byte> bytes(16 * mib, std::byte{7});
  for (std::size_t slot = 0; slot < count; slot += bytes.size() / page_bytes) {
    const request one{.op = operation::write,
                      .slot = first + slot,
                      .length_bytes = static_cast<std::uint32_t>(bytes.size()),
                      .buffer = bytes.data()};
    ASSERT_EQ(queue->submit(std::span(&one, 1)), 1u);
    completion done;
    ASSERT_EQ(queue->poll(std::span(&done, 1)), 1u);
  }
  const std::byte* const address = tested->direct(first);
  ASSERT_EQ(frames_of(address, count), count);
  for (std::size_t slot = 0; slot < count; slot += 64) tested->free(first + slot, 64);
  EXPECT_LE(frames_of(address, count) * page_bytes, 68 * mib) << "only a reserve is kept";
  EXPECT_EQ(tested->report().used_slots, 0u);

  // Released slots can be used again.
  ASSERT_EQ(tested->allocate(count).value(), first);
  const request again{.op = operation::write,
                      .slot = first + count - bytes.size() / page_bytes,
                      .length_bytes = static_cast<std::uint32_t>(bytes.size()),
                      .buffer = bytes.data()};
  ASSERT_EQ(queue->submit(std::span(&again, 1)), 1u);
  completion done;
  ASSERT_EQ(queue->poll(std::span(&done, 1)), 1u);
  EXPECT_EQ(std::memcmp(tested->direct(again.slot), bytes.data(), bytes.size()), 0);
}

// As the engine evicts: in runs, and in shorter ones where there are none. Pages come back one by one.
TEST(memory_backend, pages_that_leave_in_runs_and_come_back_alone_take_little_more_than_their_room) {
  constexpr std::size_t batch = 64;
  constexpr std::size_t live = 64 * 1024;
  const auto tested = memory_backend::create({.capacity_bytes = 8 * gib}).value();
  std::vector<slot_id> slots;
  slot_id end = 0;
  std::mt19937_64 random(7);
  for (int round = 0; round < 20'000; ++round) {
    for (std::size_t left = batch, run = batch; left > 0;) {
      run = std::min(run, left);
      const result<slot_id> first = tested->allocate(run);
      if (!first) {
        ASSERT_GT(run, 1u);
        run /= 2;
        continue;
      }
      for (std::size_t i = 0; i < run; ++i) slots.push_back(first.value() + i);
      end = std::max(end, first.value() + run);
      left -= run;
    }
    while (slots.size() > live) {
      std::swap(slots[random() % slots.size()], slots.back());
      tested->free(slots.back(), 1);
      slots.pop_back();
    }
  }
  EXPECT_LE(end * page_bytes, live * page_bytes * 3 / 2 + 256 * mib);
}

}  // namespace
}  // namespace far::backend
