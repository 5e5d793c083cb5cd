#include "backend/file/transfer_threads.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/units.h"

namespace far::backend {
namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr std::chrono::seconds deadline{120};
constexpr slot_id bad_slot = 1000;

// Transfers that are under way until they are let go on. A read gives the number of its slot in every byte.
class held_transfers final : public transfer_maker {
 public:
  [[nodiscard]] int make(const request& io, std::byte* bounce) const override {
    std::unique_lock guard(lock_);
    ++under_way_;
    changed_.notify_all();
    changed_.wait(guard, [this] { return open_; });
    --under_way_;
    bounce[0] = std::byte{1};  // every thread has its own
    if (io.slot == bad_slot) return EIO;
    std::fill_n(io.buffer, io.length_bytes, static_cast<std::byte>(io.slot));
    return 0;
  }

  void open() {
    const std::lock_guard guard(lock_);
    open_ = true;
    changed_.notify_all();
  }

  [[nodiscard]] bool reach(std::size_t under_way) const {
    std::unique_lock guard(lock_);
    return changed_.wait_for(guard, deadline, [&] { return under_way_ == under_way; });
  }
  [[nodiscard]] std::size_t under_way() const {
    const std::lock_guard guard(lock_);
    return under_way_;
  }

 private:
  mutable std::mutex lock_;
  mutable std::condition_variable changed_;
  mutable std::size_t under_way_ = 0;
  bool open_ = false;
};

struct page {
  std::array<std::byte, page_bytes> bytes{};
};

std::vector<request> reads_into(std::vector<page>& pages) {
  std::vector<request> batch;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    batch.push_back({operation::read, i, 0, page_bytes, pages[i].bytes.data(), i});
  }
  return batch;
}

// The completions of everything that is in flight, by cookie.
std::vector<int> finish(channel& queue) {
  std::vector<int> codes(queue.in_flight(), -1);
  while (queue.in_flight() > 0) {
    std::array<completion, 5> done;
    const std::size_t count = queue.poll(done);
    for (std::size_t i = 0; i < count; ++i) codes[done[i].cookie] = done[i].error_code;
    if (count == 0) queue.wait(second_ns);
  }
  return codes;
}

bool readable(int descriptor) {
  pollfd wanted{descriptor, POLLIN, 0};
  return ::poll(&wanted, 1, 0) == 1;
}

TEST(transfer_threads, the_transfers_of_one_channel_overlap) {
  held_transfers transfers;
  const auto threads = transfer_threads::start(transfers).value();
  const auto queue = threads_channel::open(*threads, 64).value();
  std::vector<page> pages(20);
  const std::vector<request> batch = reads_into(pages);
  ASSERT_EQ(queue->submit(batch), 20u);
  EXPECT_TRUE(transfers.reach(transfer_threads::most_threads)) << transfers.under_way();
  std::array<completion, 20> done;
  EXPECT_EQ(queue->poll(done), 0u);
  transfers.open();
  EXPECT_EQ(finish(*queue), std::vector<int>(20, 0));
  for (std::size_t i = 0; i < pages.size(); ++i) {
    for (const std::byte byte : pages[i].bytes) ASSERT_EQ(byte, static_cast<std::byte>(i));
  }
}

TEST(transfer_threads, there_is_one_more_than_transfers_are_under_way) {
  held_transfers transfers;
  const auto threads = transfer_threads::start(transfers).value();
  const auto queue = threads_channel::open(*threads, 64).value();
  std::vector<page> pages(3);
  const std::vector<request> batch = reads_into(pages);
  ASSERT_EQ(queue->submit(batch), 3u);
  EXPECT_TRUE(transfers.reach(3));
  EXPECT_EQ(threads->thread_count(), 4u);
  transfers.open();
  EXPECT_EQ(finish(*queue), std::vector<int>(3, 0));
}

// As misses come: each when the one before it waits for the device already.
TEST(transfer_threads, transfers_that_come_one_by_one_overlap) {
  held_transfers transfers;
  const auto threads = transfer_threads::start(transfers).value();
  const auto queue = threads_channel::open(*threads, 64).value();
  std::vector<page> pages(transfer_threads::most_threads);
  const std::vector<request> batch = reads_into(pages);
  ASSERT_GE(queue->event_descriptor(), 0);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    ASSERT_EQ(queue->submit({&batch[i], 1}), 1u);
    EXPECT_TRUE(transfers.reach(i + 1)) << transfers.under_way();
  }
  transfers.open();
  EXPECT_EQ(finish(*queue), std::vector<int>(batch.size(), 0));
}

TEST(transfer_threads, channels_share_them_and_get_what_is_theirs) {
  held_transfers transfers;
  transfers.open();
  const auto threads = transfer_threads::start(transfers).value();
  std::vector<std::thread> owners;
  for (std::size_t owner = 0; owner < 4; ++owner) {
    owners.emplace_back([&] {
      const auto queue = threads_channel::open(*threads, 16).value();
      for (std::size_t round = 0; round < 200; ++round) {
        std::vector<page> pages(16);
        ASSERT_EQ(queue->submit(reads_into(pages)), 16u);
        ASSERT_EQ(finish(*queue), std::vector<int>(16, 0));
        for (std::size_t i = 0; i < pages.size(); ++i) ASSERT_EQ(pages[i].bytes[7], static_cast<std::byte>(i));
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
}

TEST(transfer_threads, an_error_is_told_of_the_transfer_that_had_it) {
  held_transfers transfers;
  transfers.open();
  const auto threads = transfer_threads::start(transfers).value();
  const auto queue = threads_channel::open(*threads, 8).value();
  std::vector<page> pages(4);
  std::vector<request> batch = reads_into(pages);
  batch[2].slot = bad_slot;
  ASSERT_EQ(queue->submit(batch), 4u);
  EXPECT_EQ(finish(*queue), (std::vector<int>{0, 0, EIO, 0}));
}

TEST(transfer_threads, a_full_channel_takes_no_more_until_it_is_polled) {
  held_transfers transfers;
  const auto threads = transfer_threads::start(transfers).value();
  const auto queue = threads_channel::open(*threads, 4).value();
  std::vector<page> pages(6);
  const std::vector<request> batch = reads_into(pages);
  EXPECT_EQ(queue->submit(batch), 4u);
  EXPECT_EQ(queue->submit(batch), 0u);
  transfers.open();
  EXPECT_EQ(finish(*queue), std::vector<int>(4, 0));
  EXPECT_EQ(queue->submit(batch), 4u);
  EXPECT_EQ(finish(*queue), std::vector<int>(4, 0));
}

TEST(transfer_threads, the_descriptor_is_readable_while_something_is_to_be_polled) {
  held_transfers transfers;
  const auto threads = transfer_threads::start(transfers).value();
  const auto queue = threads_channel::open(*threads, 4).value();
  const int event = queue->event_descriptor();
  ASSERT_GE(event, 0);
  std::vector<page> pages(2);
  ASSERT_EQ(queue->submit(reads_into(pages)), 2u);
  ASSERT_TRUE(transfers.reach(2));
  EXPECT_FALSE(readable(event));
  transfers.open();
  pollfd wanted{event, POLLIN, 0};
  ASSERT_EQ(::poll(&wanted, 1, 20'000), 1);
  EXPECT_EQ(finish(*queue), std::vector<int>(2, 0));
  EXPECT_FALSE(readable(event));
}

TEST(transfer_threads, a_wait_ends_with_its_time_and_without_anything_in_flight) {
  held_transfers transfers;
  const auto threads = transfer_threads::start(transfers).value();
  const auto queue = threads_channel::open(*threads, 4).value();
  queue->wait(~std::uint64_t{0});
  std::vector<page> pages(2);
  ASSERT_EQ(queue->submit(reads_into(pages)), 2u);
  queue->wait(1'000'000);
  EXPECT_EQ(queue->in_flight(), 2u);
  transfers.open();
  EXPECT_EQ(finish(*queue), std::vector<int>(2, 0));
}

TEST(transfer_threads, a_single_transfer_of_who_has_no_descriptor_is_made_at_once) {
  held_transfers transfers;
  transfers.open();
  const auto threads = transfer_threads::start(transfers).value();
  const auto queue = threads_channel::open(*threads, 4).value();
  std::vector<page> pages(1);
  ASSERT_EQ(queue->submit(reads_into(pages)), 1u);
  queue->wait(~std::uint64_t{0});
  std::array<completion, 2> done;
  EXPECT_EQ(queue->poll(done), 1u);
  EXPECT_EQ(done[0].error_code, 0);
  EXPECT_EQ(threads->thread_count(), 1u);
}

TEST(transfer_threads, a_child_of_fork_starts_its_own) {
  held_transfers transfers;
  auto threads = transfer_threads::start(transfers).value();
  auto queue = threads_channel::open(*threads, 8).value();
  std::vector<page> pages(8);
  ASSERT_EQ(queue->submit(reads_into(pages)), 8u);
  ASSERT_TRUE(transfers.reach(8));
  EXPECT_TRUE(threads->is_in_its_process());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (threads->is_in_its_process()) _exit(1);
    static_cast<void>(queue.release());
    static_cast<void>(threads.release());
    held_transfers own;
    own.open();
    const auto own_threads = transfer_threads::start(own).value();
    const auto own_queue = threads_channel::open(*own_threads, 8).value();
    if (own_queue->submit(reads_into(pages)) != 8) _exit(2);
    _exit(finish(*own_queue) == std::vector<int>(8, 0) ? 0 : 3);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  transfers.open();
  EXPECT_EQ(finish(*queue), std::vector<int>(8, 0));
}

TEST(transfer_threads, their_owner_may_go_as_soon_as_everything_is_polled) {
  held_transfers transfers;
  transfers.open();
  for (std::size_t round = 0; round < 200; ++round) {
    const auto threads = transfer_threads::start(transfers).value();
    const auto queue = threads_channel::open(*threads, 8).value();
    std::vector<page> pages(8);
    ASSERT_EQ(queue->submit(reads_into(pages)), 8u);
    ASSERT_EQ(finish(*queue), std::vector<int>(8, 0));
  }
}

}  // namespace
}  // namespace far::backend
