// Tasks, and what fibers wait with, as users have them (far/fiber.h). Needs permission for userfaultfd.
#include "far/task.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/fiber.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/unique_ptr.h"
#include "fiber/scheduler.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

using task_test = heap::real_pager_test<>;
using namespace std::chrono_literals;

runtime_options on(unsigned workers) {
  runtime_options chosen;
  chosen.local_bytes = 16 * mib;
  chosen.workers = workers;
  return chosen;
}

TEST_F(task_test, returns_what_its_callable_returns) {
  runtime farheap(on(2));
  auto number = std::make_unique<int>(20);
  task<std::unique_ptr<int>> moved = farheap.spawn([number = std::move(number)]() mutable {
    *number += 1;
    return std::move(number);
  });
  task<std::string> named = farheap.spawn([] { return std::string(100, 'x'); }, {.name = "x", .stack_bytes = 1 * mib});
  EXPECT_TRUE(moved.joinable());
  EXPECT_EQ(*moved.join(), 21);
  EXPECT_FALSE(moved.joinable());
  named.wait();
  EXPECT_TRUE(named.wait_for(0s));
  EXPECT_EQ(named.join(), std::string(100, 'x'));
  EXPECT_EQ(farheap.run([] { return 5; }), 5);
  task<far::unique_ptr<int>> created = farheap.spawn([&] { return make_unique<int>(farheap, 7); });
  EXPECT_EQ(created.join().read(), 7);
}

// What a fiber in a scope keeps from leaving is held no longer than necessary (AIFM, section 5.4).
TEST_F(task_test, a_fiber_in_a_scope_runs_before_one_that_waited_longer) {
  runtime farheap(on(1));
  std::vector<std::string> order;
  counting_semaphore both(0);
  farheap.run([&] {
    const auto number = make_unique<int>(farheap, 7);
    task<> outside = farheap.spawn([&] {
      both.acquire();
      order.emplace_back("outside");
    });
    task<> inside = farheap.spawn([&] {
      const scope here(farheap);
      const int& seven = number.deref(here);
      both.acquire();
      order.emplace_back(seven == 7 ? "inside" : "wrong");
    });
    this_fiber::yield();  // they wait, in this order
    both.release(2);
    outside.join();
    inside.join();
  });
  EXPECT_EQ(order, (std::vector<std::string>{"inside", "outside"}));
}

TEST_F(task_test, a_runtime_waits_for_its_fibers) {
  std::atomic<int> reads{0};
  task<> reads_on;
  {
    auto farheap = std::make_unique<runtime>(heap::small_runtime());
    reads_on = farheap->spawn([&reads, home = farheap.get()] {
      const auto number = make_unique<int>(*home, 7);
      for (int i = 0; i < 200; ++i) {
        reads += number.read() == 7;
        this_fiber::sleep_for(std::chrono::milliseconds(1));
      }
    });
    while (reads == 0) std::this_thread::yield();
    std::thread ends([&] { farheap.reset(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    reads_on.join();
    ends.join();
  }
  EXPECT_EQ(reads, 200);
}

TEST_F(task_test, a_task_may_be_joined_after_its_runtime_has_ended) {
  task<int> left;
  {
    runtime farheap(on(2));
    left = farheap.spawn([] {
      this_fiber::sleep_for(std::chrono::milliseconds(20));
      return 7;
    });
  }
  EXPECT_EQ(left.join(), 7);
}

TEST_F(task_test, a_second_process_wide_runtime_leaves_the_first) {
  runtime_options chosen = heap::small_runtime();
  chosen.process_wide = true;
  runtime first(chosen);
  EXPECT_THROW(runtime second(chosen), std::runtime_error);
  EXPECT_EQ(&runtime::process(), &first);
}

// In a process of its own, because the runtime of the environment stays to its end. Some of the times the maker is the
// faster one of the two, and then the runtime is its.
[[noreturn]] void ask_while_one_is_made() {
  runtime_options chosen = heap::small_runtime();
  chosen.process_wide = true;
  std::latch begin(2);
  std::unique_ptr<runtime> made;
  std::thread maker([&] {
    begin.arrive_and_wait();
    try {
      made = std::make_unique<runtime>(chosen);
    } catch (const std::runtime_error&) {  // there is one already
    }
  });
  begin.arrive_and_wait();
  runtime* found = nullptr;
  try {
    found = &runtime::process();
  } catch (const std::runtime_error& refused) {
    std::fprintf(stderr, "%s\n", refused.what());
  }
  maker.join();
  const bool is_right = found != nullptr && (made == nullptr || found == made.get());
  std::_Exit(is_right ? 0 : 1);
}

TEST_F(task_test, process_returns_the_runtime_of_a_faster_thread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int i = 0; i < 8; ++i) EXPECT_EXIT(ask_while_one_is_made(), ::testing::ExitedWithCode(0), "");
}

TEST_F(task_test, a_stack_that_cannot_be_is_refused) {
  runtime farheap(heap::small_runtime());
  const auto ask = [&](std::size_t bytes) { farheap.spawn([] {}, {.stack_bytes = bytes}).join(); };
  EXPECT_THROW(ask(~std::size_t{0}), std::system_error);
  EXPECT_THROW(ask(std::size_t{1} << 60), std::system_error);
  ask(std::size_t{1} << 20);
}

TEST_F(task_test, throws_what_its_callable_throws) {
  runtime farheap(on(1));
  task<int> fails = farheap.spawn([]() -> int { throw std::runtime_error("no number"); });
  EXPECT_THROW(static_cast<void>(fails.join()), std::runtime_error);
  EXPECT_THROW(farheap.run([] { throw std::logic_error("nor this"); }), std::logic_error);
  task<> dropped = farheap.spawn([] { throw std::runtime_error("nobody asks"); });
}

TEST_F(task_test, joins_when_it_is_destroyed_or_assigned) {
  runtime farheap(on(2));
  std::atomic<int> ended{0};
  const auto slow = [&] {
    this_fiber::sleep_for(5ms);
    ++ended;
  };
  task<> one = farheap.spawn(slow);
  EXPECT_FALSE(one.wait_for(1us) && ended.load() == 0);
  one = farheap.spawn(slow);
  EXPECT_GE(ended.load(), 1);
  one = task<>();
  EXPECT_EQ(ended.load(), 2);
  EXPECT_FALSE(one.joinable());
}

TEST_F(task_test, what_a_callable_holds_goes_with_its_fiber) {
  runtime farheap(on(1));
  auto held = std::make_shared<int>(1);
  task<> holds = farheap.spawn([held] {});
  holds.wait();
  EXPECT_EQ(held.use_count(), 1);
}

TEST_F(task_test, fibers_and_threads_share_a_mutex_and_a_condition) {
  runtime farheap(on(2));
  mutex lock;
  condition_variable changed;
  unsigned turns = 0;
  const auto take_turns = [&](unsigned mine) {
    for (unsigned i = 0; i < 200; ++i) {
      std::unique_lock guard(lock);
      changed.wait(guard, [&] { return turns % 4 == mine; });
      ++turns;
      changed.notify_all();
    }
  };
  {
    std::vector<task<>> running;
    for (unsigned i = 0; i < 3; ++i) running.push_back(farheap.spawn([&, i] { take_turns(i); }));
    take_turns(3);
  }
  EXPECT_EQ(turns, 800u);
  std::unique_lock guard(lock);
  EXPECT_FALSE(changed.wait_for(guard, 1ms));
  EXPECT_FALSE(changed.wait_for(guard, 1ms, [] { return false; }));
  EXPECT_FALSE(farheap.run([&] { return lock.try_lock() || lock.try_lock_for(1ms); }));
}

TEST_F(task_test, a_semaphore_counts) {
  runtime farheap(on(2));
  counting_semaphore places(2);
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  {
    std::vector<task<>> running;
    for (int i = 0; i < 20; ++i) {
      running.push_back(farheap.spawn([&] {
        places.acquire();
        const int now = ++inside;
        for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        this_fiber::yield();
        --inside;
        places.release();
      }));
    }
  }
  EXPECT_LE(most.load(), 2);
  EXPECT_TRUE(places.try_acquire() && places.try_acquire());
  EXPECT_FALSE(places.try_acquire() || places.try_acquire_for(1ms));
}

TEST_F(task_test, a_channel_carries_what_owns_far_objects) {
  runtime farheap(on(2));
  channel<unique_ptr<int>> numbers(4);
  task<int> sum = farheap.spawn([&] {
    int found = 0;
    while (const std::optional<unique_ptr<int>> next = numbers.receive()) found += next->read();
    return found;
  });
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(numbers.send(make_unique<int>(farheap, i)));
  numbers.close();
  EXPECT_EQ(sum.join(), 4950);
  EXPECT_FALSE(numbers.send(nullptr));
  EXPECT_TRUE(numbers.closed());
  channel<int> full(1);
  EXPECT_TRUE(full.send_for(1, 1ms));
  EXPECT_FALSE(full.send_for(2, 1ms));
  EXPECT_EQ(full.receive_for(1ms), 1);
  EXPECT_EQ(full.receive_for(1ms), std::nullopt);
  EXPECT_THROW(channel<int>(0), std::invalid_argument);
}

// With one worker: it would wait for ever in the kernel if it made the call itself.
TEST_F(task_test, a_blocking_call_holds_up_no_other_fiber) {
  runtime farheap(on(1));
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  task<ssize_t> reader = farheap.spawn([&] {
    char byte = 0;
    EXPECT_TRUE(this_fiber::is_fiber());
    return blocking([&] { return read(ends[0], &byte, 1); });
  });
  farheap.run([&] { EXPECT_EQ(write(ends[1], "x", 1), 1); });
  EXPECT_EQ(reader.join(), 1);
  EXPECT_FALSE(this_fiber::is_fiber());
  EXPECT_THROW(farheap.run([] { blocking([] { throw std::runtime_error("not here"); }); }), std::runtime_error);
  EXPECT_EQ(*blocking([held = std::make_unique<int>(3)]() mutable { return std::move(held); }), 3);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(task_test, sleeps_at_least_so_long) {
  runtime farheap(on(1));
  const auto start = std::chrono::steady_clock::now();
  farheap.run([] { this_fiber::sleep_for(3ms); });
  this_fiber::sleep_until(start + 5ms);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 5ms);
}

// The destructor of a static runtime would wait for the fiber that it runs on.
TEST_F(task_test, exit_on_a_fiber_ends_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        alarm(60);
        static runtime farheap(on(2));
        static auto one = make_unique<int>(farheap, 1);
        task<void> other = farheap.spawn([] { this_fiber::sleep_for(1h); });
        farheap.run([&] {
          const scope here(farheap);
          one.deref_mut(here) = 2;
          std::exit(7);
        });
      },
      ::testing::ExitedWithCode(7), "destroyed on one of its own fibers");
}

// The one worker that there is runs the fiber that the other runtime's waits for.
TEST_F(task_test, a_runtime_that_ends_on_a_fiber_of_another_holds_up_no_other_fiber) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        alarm(60);
        runtime farheap(on(1));
        auto other = std::make_unique<runtime>(on(1));
        counting_semaphore ended(0);
        other->fibers().spawn([&] { ended.acquire(); }).detach();
        task<void> ending = farheap.spawn([&] { other.reset(); });
        task<void> next = farheap.spawn([&] { ended.release(); });
        ending.join();
        next.join();
        _exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST_F(task_test, exit_on_a_fiber_waits_for_the_fibers_of_other_runtimes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        alarm(60);
        static runtime farheap(on(1));
        static runtime other(on(1));
        other.fibers()
            .spawn([] {
              this_fiber::sleep_for(200ms);
              static_cast<void>(std::fputs("to its end", stderr));
            })
            .detach();
        farheap.run([] { std::exit(7); });
      },
      ::testing::ExitedWithCode(7), "to its end");
}

// The fiber that it works for waits for it.
TEST_F(task_test, exit_in_a_blocking_call_ends_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        alarm(60);
        static runtime farheap(on(2));
        farheap.run([] { blocking([] { std::exit(7); }); });
      },
      ::testing::ExitedWithCode(7), "destroyed on one of its own fibers");
}

TEST_F(task_test, options_that_make_no_sense_are_refused) {
  EXPECT_THROW(runtime(on(1025)), std::runtime_error);
  runtime_options chosen = on(1);
  chosen.page_path_share = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(runtime{chosen}, std::runtime_error);
  chosen = on(1);
  chosen.evacuate_garbage_share = -1;
  EXPECT_THROW(runtime{chosen}, std::runtime_error);
  runtime farheap(on(1));
  EXPECT_THROW(farheap.set_page_path_share(-0.5), std::runtime_error);
  farheap.set_page_path_share(std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace far
