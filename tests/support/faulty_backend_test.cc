#include "tests/support/faulty_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "platform/clock.h"

namespace far::backend {
namespace {

std::unique_ptr<faulty_backend> make(const faulty_options& chosen) {
  return std::make_unique<faulty_backend>(open("memory:?capacity=16M").value(), chosen);
}

// Writes 200 pages through one channel and returns the completions in the order in which they came.
std::vector<completion> write_all(faulty_backend& tested) {
  static std::array<std::byte, page_bytes> bytes{};
  const auto queue = tested.open_channel(16).value();
  const slot_id first = tested.allocate(200).value();
  std::vector<completion> all;
  for (std::uint64_t next = 0; all.size() < 200;) {
    if (next < 200) {
      const request one{.op = operation::write, .slot = first + next, .buffer = bytes.data(), .cookie = next};
      next += queue->submit(std::span(&one, 1));
    }
    std::array<completion, 3> done;
    const std::size_t count = queue->poll(done);
    all.insert(all.end(), done.begin(), done.begin() + static_cast<std::ptrdiff_t>(count));
  }
  tested.free(first, 200);
  return all;
}

faulty_options unruly(std::uint64_t seed) {
  faulty_options chosen;
  chosen.seed = seed;
  chosen.maximum_delay_ticks = 10;
  chosen.reorders = true;
  chosen.takes_partial_batches = true;
  chosen.failing_writes_per_million = 200'000;
  return chosen;
}

TEST(faulty_backend, the_seed_decides_everything) {
  const auto same = [](const completion& a, const completion& b) {
    return a.cookie == b.cookie && a.error_code == b.error_code;
  };
  const std::vector<completion> one = write_all(*make(unruly(1)));
  const std::vector<completion> again = write_all(*make(unruly(1)));
  const std::vector<completion> other = write_all(*make(unruly(2)));
  EXPECT_TRUE(std::equal(one.begin(), one.end(), again.begin(), same));
  EXPECT_FALSE(std::equal(one.begin(), one.end(), other.begin(), same));
}

TEST(faulty_backend, it_reorders_and_fails_about_as_often_as_asked) {
  const std::vector<completion> all = write_all(*make(unruly(3)));
  const auto failed =
      std::count_if(all.begin(), all.end(), [](const completion& one) { return one.error_code == EIO; });
  EXPECT_GT(failed, 10);
  EXPECT_LT(failed, 90);
  EXPECT_FALSE(
      std::is_sorted(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.cookie < b.cookie; }));
}

TEST(faulty_backend, a_failed_transfer_leaves_rubbish) {
  const auto tested = make({});
  const auto queue = tested->open_channel(1).value();
  const slot_id slot = tested->allocate(1).value();
  const auto run = [&](operation op, std::vector<std::byte>& bytes) {
    const request one{.op = op, .slot = slot, .buffer = bytes.data()};
    EXPECT_EQ(queue->submit(std::span(&one, 1)), 1u);
    completion done;
    EXPECT_EQ(queue->poll(std::span(&done, 1)), 1u);
    return done.error_code;
  };
  std::vector<std::byte> good(page_bytes, std::byte{1});
  std::vector<std::byte> read(page_bytes);
  EXPECT_EQ(run(operation::write, good), 0);
  tested->set_failing_reads_per_million(1'000'000);
  EXPECT_EQ(run(operation::read, read), EIO);
  EXPECT_NE(read, good);
  tested->set_failing_reads_per_million(0);
  EXPECT_EQ(run(operation::read, read), 0);
  EXPECT_EQ(read, good);
  tested->set_failing_writes_per_million(1'000'000);
  EXPECT_EQ(run(operation::write, good), EIO);
  EXPECT_EQ(run(operation::read, read), 0);
  EXPECT_NE(read, good);
}

TEST(faulty_backend, slots_run_out_and_come_back) {
  const auto tested = make({.slot_limit = 10});
  const slot_id first = tested->allocate(8).value();
  EXPECT_EQ(tested->allocate(3).error().code, ENOSPC);
  EXPECT_TRUE(tested->allocate(2).ok());
  EXPECT_EQ(tested->allocate(1).error().code, ENOSPC);
  tested->free(first, 4);
  EXPECT_TRUE(tested->allocate(4).ok());
  tested->set_slot_limit(12);
  EXPECT_TRUE(tested->allocate(2).ok());
  EXPECT_EQ(tested->report().used_slots, 12u);
}

TEST(faulty_backend, a_crash_fails_what_is_in_flight_and_recovery_keeps_what_was_complete) {
  const auto tested = make({.minimum_delay_ticks = 5, .maximum_delay_ticks = 5});
  const auto queue = tested->open_channel(4).value();
  const slot_id slot = tested->allocate(2).value();
  std::vector<std::byte> bytes(page_bytes, std::byte{1});
  completion done;
  const request complete{.op = operation::write, .slot = slot, .buffer = bytes.data()};
  ASSERT_EQ(queue->submit(std::span(&complete, 1)), 1u);
  while (queue->poll(std::span(&done, 1)) == 0) queue->wait(0);
  ASSERT_EQ(done.error_code, 0);

  const request running{.op = operation::write, .slot = slot + 1, .buffer = bytes.data()};
  ASSERT_EQ(queue->submit(std::span(&running, 1)), 1u);
  tested->crash();
  ASSERT_EQ(queue->poll(std::span(&done, 1)), 1u);
  EXPECT_EQ(done.error_code, EIO);
  EXPECT_FALSE(tested->allocate(1).ok());

  tested->recover();
  std::vector<std::byte> read(page_bytes);
  const request reading{.op = operation::read, .slot = slot, .buffer = read.data()};
  ASSERT_EQ(queue->submit(std::span(&reading, 1)), 1u);
  while (queue->poll(std::span(&done, 1)) == 0) queue->wait(0);
  EXPECT_EQ(done.error_code, 0);
  EXPECT_EQ(read, bytes);
}

class stopped_clock final : public platform::clock {
 public:
  std::uint64_t now_ns() const override { return now; }
  std::uint64_t now = 0;
};

TEST(faulty_backend, with_a_clock_delays_are_its_nanoseconds) {
  stopped_clock clock;
  const auto tested = make({.minimum_delay_ticks = 1000, .maximum_delay_ticks = 1000, .clock = &clock});
  const auto queue = tested->open_channel(4).value();
  const slot_id slot = tested->allocate(1).value();
  std::array<std::byte, page_bytes> bytes{};
  completion done;
  const request one{.op = operation::read, .slot = slot, .buffer = bytes.data()};
  ASSERT_EQ(queue->submit(std::span(&one, 1)), 1u);
  clock.now = 999;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(queue->poll(std::span(&done, 1)), 0u);
  clock.now = 1000;
  EXPECT_EQ(queue->poll(std::span(&done, 1)), 1u);
}

}  // namespace
}  // namespace far::backend
