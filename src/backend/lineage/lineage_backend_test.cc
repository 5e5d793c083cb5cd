// The layer that outlives forks, over `memory:` tiers and real forks: which slots are whose, and when they are freed.
#include "backend/lineage/lineage_backend.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>

#include "backend/memory/memory_backend.h"
#include "tests/support/controlled_members.h"

namespace far::backend {
namespace {

constexpr std::uint64_t capacity_bytes = 64 * mib;
using page = std::array<std::byte, page_bytes>;

class lineage : public testing::Test {
 protected:
  static result<std::unique_ptr<backend>> open_memory() {
    return memory_backend::create({.capacity_bytes = capacity_bytes, .latency_ns = 0, .gigabits_per_second = 0});
  }

  lineage() : tested_(open_memory().value(), [this] { return open_own(); }, clock_) {}

  result<std::unique_ptr<backend>> open_own() {
    ++opened_;
    if (fails_) return error{"there is none", ENOENT};
    return open_memory();
  }

  static page content(slot_id slot, int salt) {
    page bytes;
    bytes.fill(static_cast<std::byte>(slot * 7 + static_cast<slot_id>(salt)));
    return bytes;
  }
  static void transfer(channel& queue, operation op, slot_id slot, std::byte* buffer) {
    const request wanted{.op = op, .slot = slot, .offset_bytes = 0, .length_bytes = page_bytes, .buffer = buffer};
    FAR_CHECK(queue.submit({&wanted, 1}) == 1, "there is room");
    completion done{};
    while (queue.poll({&done, 1}) == 0) queue.wait(1'000'000);
    FAR_CHECK(done.error_code == 0, "memory does not fail");
  }
  static void write(channel& queue, slot_id slot, int salt) {
    page bytes = content(slot, salt);
    transfer(queue, operation::write, slot, bytes.data());
  }
  static bool holds(channel& queue, slot_id slot, int salt) {
    page bytes{};
    transfer(queue, operation::read, slot, bytes.data());
    return bytes == content(slot, salt);
  }

  // Forks a child that takes over, claims these slots, and does `body`; returns its number.
  pid_t fork_child(std::initializer_list<slot_id> claims, const std::function<bool()>& body) {
    tested_.prepare_fork();
    const pid_t child = fork();
    if (child != 0) {
      tested_.after_fork_in_parent();
      return child;
    }
    tested_.after_fork_in_child();
    for (const slot_id slot : claims) tested_.claim_in_child(slot);
    tested_.close_claims_in_child();
    _exit(body() ? 0 : 1);
  }
  static void expect_success(pid_t child) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  void tend() {
    while (tested_.tend() == 0) {
    }
  }
  [[nodiscard]] std::uint64_t used() const { return tested_.report().used_slots; }
  [[nodiscard]] std::uint64_t kept() const { return tested_.report().kept_slots; }

  platform::monotonic_clock clock_;
  int opened_ = 0;
  bool fails_ = false;
  lineage_backend tested_;
};

// Two processes take turns.
class turns {
 public:
  turns() { FAR_CHECK(pipe(there_.data()) == 0 && pipe(back_.data()) == 0, "pipes can be made"); }
  void tell_parent() { say(back_); }
  void wait_for_child() { hear(back_); }
  void tell_child() { say(there_); }
  void wait_for_parent() { hear(there_); }

 private:
  static void say(const std::array<int, 2>& pipe) { FAR_CHECK(::write(pipe[1], "x", 1) == 1, "a pipe takes a byte"); }
  static void hear(const std::array<int, 2>& pipe) {
    char byte = 0;
    FAR_CHECK(::read(pipe[0], &byte, 1) == 1, "a pipe gives a byte");
  }
  std::array<int, 2> there_{};
  std::array<int, 2> back_{};
};

TEST_F(lineage, without_a_fork_it_is_the_tier_itself) {
  const slot_id first = tested_.allocate(3).value();
  EXPECT_EQ(used(), 3u);
  EXPECT_NE(tested_.direct(first), nullptr);
  tested_.free(first, 3);
  EXPECT_EQ(used(), 0u);
  EXPECT_FALSE(tested_.wants_tending());
  EXPECT_EQ(opened_, 0);
}

TEST_F(lineage, a_child_waits_for_time_as_the_inherited_tier_does) {
  auto tier = std::make_unique<controlled>("tier");
  bool& waits = tier->waits_for_time;
  lineage_backend tested(std::move(tier), [this] { return open_own(); }, clock_);
  const slot_id slot = tested.allocate(1).value();
  tested.prepare_fork();
  const pid_t child = fork();
  if (child == 0) {
    tested.after_fork_in_child();
    tested.claim_in_child(slot);
    tested.close_claims_in_child();
    const std::unique_ptr<channel> queue = tested.open_channel(16).value();
    const bool waited = queue->waits_for_time();
    waits = true;
    _exit(!waited && queue->waits_for_time() ? 0 : 1);
  }
  tested.after_fork_in_parent();
  expect_success(child);
}

TEST_F(lineage, a_child_reads_what_it_inherited_and_writes_to_a_tier_of_its_own) {
  const slot_id first = tested_.allocate(4).value();
  const std::unique_ptr<channel> mine = tested_.open_channel(16).value();
  for (slot_id slot = first; slot < first + 4; ++slot) write(*mine, slot, 1);
  const pid_t child = fork_child({first, first + 1, first + 2}, [&] {
    const std::unique_ptr<channel> queue = tested_.open_channel(16).value();
    if (!holds(*queue, first, 1) || !holds(*queue, first + 2, 1) || used() != 3 || opened_ != 0) return false;
    if (tested_.allocate(2).error().code != EAGAIN || !tested_.wants_tending()) return false;
    tend();
    const slot_id own = tested_.allocate(2).value();
    if (own <= first + 4 || opened_ != 1 || used() != 5) return false;
    write(*queue, own, 2);
    write(*queue, own + 1, 2);
    if (!holds(*queue, own + 1, 2) || !holds(*queue, own, 2) || !holds(*queue, first + 1, 1)) return false;
    tested_.free(own, 2);
    tested_.free(first, 3);
    return used() == 0 && kept() == 0;
  });
  expect_success(child);
}

TEST_F(lineage, a_slot_is_free_when_both_have_let_go_of_it) {
  turns order;
  const slot_id first = tested_.allocate(4).value();
  const pid_t child = fork_child({first, first + 1}, [&] {
    order.tell_parent();
    order.wait_for_parent();
    tested_.free(first, 1);
    order.tell_parent();
    order.wait_for_parent();
    return true;
  });
  order.wait_for_child();
  tested_.free(first, 4);  // two of them the child does not refer to
  EXPECT_EQ(kept(), 2u);
  EXPECT_EQ(used(), 2u);
  const slot_id later = tested_.allocate(1).value();
  tested_.free(later, 1);  // the child does not know it
  EXPECT_EQ(used(), 2u);
  order.tell_child();
  order.wait_for_child();
  tend();
  EXPECT_EQ(kept(), 1u);
  order.tell_child();
  expect_success(child);
  tend();
  EXPECT_EQ(kept(), 0u);
  EXPECT_EQ(used(), 0u);
}

TEST_F(lineage, before_a_child_has_said_what_it_refers_to_everything_is_kept) {
  const slot_id first = tested_.allocate(2).value();
  tested_.prepare_fork();
  turns order;
  const pid_t child = fork();
  if (child == 0) {
    order.wait_for_parent();
    _exit(0);
  }
  tested_.after_fork_in_parent();
  tested_.free(first, 2);
  tend();
  EXPECT_EQ(kept(), 2u);
  order.tell_child();
  expect_success(child);
  tend();
  EXPECT_EQ(used(), 0u);
}

TEST_F(lineage, a_grandchild_outlives_the_child) {
  turns order;
  const slot_id first = tested_.allocate(2).value();
  const std::unique_ptr<channel> mine = tested_.open_channel(16).value();
  write(*mine, first, 1);
  write(*mine, first + 1, 1);
  const pid_t child = fork_child({first, first + 1}, [&] {
    if (tested_.allocate(1).error().code != EAGAIN) return false;
    tend();
    const slot_id own = tested_.allocate(1).value();
    const std::unique_ptr<channel> queue = tested_.open_channel(16).value();
    write(*queue, own, 2);
    fork_child({first, own}, [&, own] {
      order.wait_for_parent();
      const std::unique_ptr<channel> still = tested_.open_channel(16).value();
      const bool right = holds(*still, first, 1) && holds(*still, own, 2);
      order.tell_parent();
      order.wait_for_parent();
      return right;
    });
    return true;
  });
  expect_success(child);
  tested_.free(first, 2);
  tend();
  EXPECT_EQ(kept(), 2u) << "what the child referred to stays as long as a child of its own may";
  order.tell_child();
  order.wait_for_child();
  order.tell_child();
  for (int i = 0; i < 1000 && kept() > 0; ++i) {
    usleep(10'000);
    tend();
  }
  EXPECT_EQ(used(), 0u);
}

TEST_F(lineage, a_child_that_holds_nothing_is_not_waited_for) {
  turns order;
  const slot_id first = tested_.allocate(2).value();
  const pid_t child = fork_child({}, [&] {
    order.tell_parent();
    order.wait_for_parent();
    return true;
  });
  order.wait_for_child();
  tend();
  tested_.free(first, 2);
  EXPECT_EQ(used(), 0u);
  order.tell_child();
  expect_success(child);
}

TEST_F(lineage, without_descriptors_the_end_of_a_child_is_noticed_all_the_same) {
  const slot_id first = tested_.allocate(2).value();
  turns order;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const pid_t child = fork_child({first}, [&] {
    order.tell_parent();
    order.wait_for_parent();
    return true;
  });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  order.wait_for_child();
  tested_.free(first, 2);
  tend();
  EXPECT_EQ(kept(), 1u);
  order.tell_child();
  expect_success(child);
  tend();
  EXPECT_EQ(used(), 0u);
}

TEST_F(lineage, a_tier_that_cannot_be_opened_is_tried_again) {
  const slot_id first = tested_.allocate(1).value();
  fails_ = true;
  const pid_t child = fork_child({first}, [&] {
    if (tested_.allocate(1).error().code != EAGAIN) return false;
    tend();
    if (tested_.allocate(1).error().code != ENODEV || tested_.wants_tending()) return false;
    fails_ = false;
    while (!tested_.wants_tending()) usleep(10'000);
    tend();
    return tested_.allocate(1).ok() && opened_ == 2;
  });
  expect_success(child);
}

// A queue that is told of by any descriptor.
class silent_queue final : public channel {
 public:
  explicit silent_queue(const int& descriptor) : descriptor_(descriptor) {}
  std::size_t submit(std::span<const request> /*batch*/) override { return 0; }
  std::size_t poll(std::span<completion> /*done*/) override { return 0; }
  void wait(std::uint64_t /*timeout_ns*/) override {}
  [[nodiscard]] std::size_t in_flight() const override { return 0; }
  [[nodiscard]] int event_descriptor() const override { return descriptor_; }

 private:
  const int& descriptor_;
};

TEST_F(lineage, a_queue_that_cannot_be_watched_makes_its_channel_one_without_a_descriptor) {
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // which epoll refuses
  const int event = eventfd(0, EFD_CLOEXEC);
  int descriptor = file;
  lineage_channel::part_list parts;
  parts.push_back({.base = 0, .end = 10, .queue = std::make_unique<silent_queue>(event)});
  parts.push_back({.base = 11, .end = 20, .queue = std::make_unique<silent_queue>(descriptor)});
  const lineage_channel tested(tested_, std::move(parts), 4);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(tested.event_descriptor(), -1);
  descriptor = eventfd(0, EFD_CLOEXEC);
  EXPECT_GE(tested.event_descriptor(), 0) << "it is tried again";
  close(descriptor);
  close(event);
  close(file);
}

TEST_F(lineage, many_kept_slots_are_freed_in_steps) {
  constexpr std::size_t count = 10'000;
  turns order;
  const slot_id first = tested_.allocate(count).value();
  const pid_t child = fork_child({first + 1}, [&] {
    order.tell_parent();
    order.wait_for_parent();
    return true;
  });
  tested_.free(first, count);
  order.wait_for_child();
  order.tell_child();
  expect_success(child);
  tend();
  EXPECT_EQ(used(), 0u);
}

}  // namespace
}  // namespace far::backend
