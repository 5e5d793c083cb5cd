// Spawning, joining, yielding, sleeping, stealing, pollers, blocking calls, exceptions.
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/spin_lock.h"
#include "fiber/blocking.h"
#include "fiber/poller_list.h"
#include "fiber/semaphore.h"
#include "tests/support/fiber_runs.h"
#include "tests/support/no_threads.h"

namespace far::fiber {
namespace {

using namespace testing;

TEST(fibers, run_and_are_joined_from_a_thread) {
  scheduler workers(with_workers(2));
  int answer = 0;
  handle fiber = workers.spawn([&] { answer = 42; }, {.name = "answer"});
  fiber.join();
  EXPECT_EQ(answer, 42);
  EXPECT_FALSE(fiber.joinable());
}

TEST(fibers, know_their_name_and_number_and_threads_have_none) {
  scheduler workers(with_workers(1));
  std::string name;
  std::uint64_t number = 0;
  workers.spawn([&] { name = current_name(), number = current_number(); }, {.name = "evictor"}).join();
  EXPECT_EQ(name, "evictor");
  EXPECT_EQ(number, 1u);
  EXPECT_FALSE(on_fiber());
  EXPECT_STREQ(current_name(), "");
}

TEST(fibers, join_each_other_in_a_tree) {
  scheduler workers(with_workers(2));
  struct tree {
    scheduler& on;
    std::atomic<unsigned> leaves{0};
    void grow(unsigned depth) {
      if (depth == 0) return static_cast<void>(leaves.fetch_add(1));
      handle left = on.spawn([this, depth] { grow(depth - 1); });
      handle right = on.spawn([this, depth] { grow(depth - 1); });
      left.join();
      right.join();
    }
  } all{workers};
  workers.spawn([&] { all.grow(6); }).join();
  EXPECT_EQ(all.leaves, 64u);
}

TEST(fibers, are_destroyed_with_what_they_captured) {
  const auto tracked = std::make_shared<int>(7);
  {
    scheduler workers(with_workers(2));
    for (int i = 0; i < 10; ++i) {
      workers.spawn([tracked] { EXPECT_EQ(*tracked, 7); }).detach();
    }
  }
  EXPECT_EQ(tracked.use_count(), 1);
}

TEST(fibers, a_handle_joins_when_it_is_destroyed_or_assigned) {
  scheduler workers(with_workers(1));
  std::atomic<int> ended = 0;
  {
    handle one = workers.spawn([&] { sleep_for(1ms), ++ended; });
    one = workers.spawn([&] { sleep_for(1ms), ++ended; });
    EXPECT_GE(ended, 1);
  }
  EXPECT_EQ(ended, 2);
}

TEST(fibers, join_gives_up_at_its_deadline) {
  scheduler workers(with_workers(1));
  semaphore go;
  handle fiber = workers.spawn([&] { go.acquire(); });
  EXPECT_FALSE(fiber.join_for(2ms));
  workers.spawn([&] { EXPECT_FALSE(fiber.join_for(2ms)); }).join();
  EXPECT_TRUE(fiber.joinable());
  go.release();
  EXPECT_TRUE(fiber.join_for(patience));
}

TEST(fibers, spawn_propagates_what_copying_the_body_throws) {
  scheduler workers(with_workers(1));
  struct cannot_be_copied {
    cannot_be_copied() = default;
    cannot_be_copied(const cannot_be_copied& /*other*/) { throw std::runtime_error("no copy"); }
    void operator()() const {}
  };
  const cannot_be_copied body;
  EXPECT_THROW(static_cast<void>(workers.spawn(body)), std::runtime_error);
}

TEST(fibers, yield_takes_turns) {
  scheduler workers(with_workers(1));
  std::string order;
  workers
      .spawn([&] {
        handle a = workers.spawn([&] {
          for (int i = 0; i < 20; ++i) order += 'a', yield();
        });
        handle b = workers.spawn([&] {
          for (int i = 0; i < 20; ++i) order += 'b', yield();
        });
        a.join();
        b.join();
      })
      .join();
  std::string expected;
  for (int i = 0; i < 20; ++i) expected += "ab";
  EXPECT_EQ(order, expected);
}

TEST(fibers, one_that_has_waited_need_not_yield) {
  scheduler workers(with_workers(1));
  std::string order;
  workers
      .spawn([&] {
        handle a = workers.spawn([&] {
          for (int i = 0; i < 4; ++i) order += 'a', yield_unless_waited();
        });
        handle b = workers.spawn([&] {
          for (int i = 0; i < 4; ++i) {
            order += 'b';
            yield();
            order += 'B';
            yield_unless_waited();
          }
        });
        a.join();
        b.join();
      })
      .join();
  EXPECT_EQ(order, "abaBbaBbaBbB");
  yield_unless_waited();  // on a thread there is nothing to do
}

TEST(fibers, sleepers_wake_in_the_order_of_their_deadlines) {
  scheduler workers(with_workers(1));
  // The order is told by the deadlines only when all have gone to sleep before the first one: try until that is so.
  bool in_time = false;
  for (auto lead = 5ms; !in_time && lead < 10s; lead *= 2) {
    std::vector<int> order;
    in_time = true;
    workers
        .spawn([&] {
          const time_point start = after(lead);
          std::vector<handle> all;
          for (const int rank : {7, 2, 9, 1, 5, 0, 8, 3, 6, 4}) {
            all.push_back(workers.spawn([&order, start, rank] {
              sleep_until(start + rank * 100us);
              EXPECT_GE(std::chrono::steady_clock::now(), start + rank * 100us);
              order.push_back(rank);
            }));
          }
          const std::uint64_t parked = workers.snapshot().parks;
          while (workers.snapshot().parks < parked + 10) yield();
          in_time = std::chrono::steady_clock::now() < start;
        })
        .join();
    if (in_time) {
      EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
    }
  }
  EXPECT_TRUE(in_time);
}

TEST(fibers, a_sleep_into_the_past_or_of_no_length_ends) {
  scheduler workers(with_workers(1));
  workers
      .spawn([] {
        sleep_until(time_point{});
        sleep_for(-5s);
        sleep_for(0s);
      })
      .join();
  sleep_for(0s);
}

TEST(fibers, idle_workers_take_fibers_from_a_busy_one) {
  scheduler workers(with_workers(2));
  // The first fiber keeps its worker until the second, spawned on the same worker, has run elsewhere.
  std::atomic<bool> other_ran = false;
  workers
      .spawn([&] {
        handle other = workers.spawn([&] { other_ran = true; });
        const time_point deadline = after(patience);
        while (!other_ran && std::chrono::steady_clock::now() < deadline) cpu_relax();
        EXPECT_TRUE(other_ran);
      })
      .join();
  EXPECT_GE(workers.snapshot().stolen, 1u);
}

TEST(fibers, deadlines_and_pollers_are_served_while_a_fiber_keeps_its_worker) {
  scheduler workers(with_workers(2));
  std::atomic<bool> slept = false;
  std::atomic<bool> polled = false;
  std::atomic<bool> submitted = false;
  const unsigned number = workers.add_poller([&] {
    if (submitted) polled = true;
    return std::chrono::nanoseconds::max();
  });
  workers
      .spawn([&] {
        handle sleeper = workers.spawn([&] { sleep_for(3ms), slept = true; });
        yield();
        submitted = true;
        workers.poll_soon(number);
        const time_point deadline = after(patience);
        while (!(slept && polled) && std::chrono::steady_clock::now() < deadline) cpu_relax();
        EXPECT_TRUE(slept);
        EXPECT_TRUE(polled);
      })
      .join();
  workers.remove_poller(number);
}

TEST(fibers, a_poller_completes_waits_and_is_called_when_it_wants) {
  scheduler workers(with_workers(2));
  struct completions {
    spin_lock lock;
    std::vector<std::pair<time_point, waiter*>> pending;
  } far_tier;
  const unsigned number = workers.add_poller([&]() -> std::chrono::nanoseconds {
    const std::lock_guard guard(far_tier.lock);
    const time_point now = std::chrono::steady_clock::now();
    std::erase_if(far_tier.pending, [&](auto& one) { return one.first <= now && (one.second->wake(), true); });
    return far_tier.pending.empty() ? std::chrono::nanoseconds::max() : 10us;
  });
  std::atomic<unsigned> completed = 0;
  std::vector<handle> all;
  for (unsigned i = 0; i < 100; ++i) {
    all.push_back(workers.spawn([&] {
      for (unsigned k = 0; k < 5; ++k) {
        waiter mine;
        {
          const std::lock_guard guard(far_tier.lock);
          far_tier.pending.emplace_back(after(20us), &mine);
        }
        workers.poll_soon(number);
        mine.park();
        ++completed;
      }
    }));
  }
  all.clear();
  EXPECT_EQ(completed, 500u);
  EXPECT_GT(workers.snapshot().polls, 0u);
  workers.remove_poller(number);
}

// Those whom it served may call for it once more, which others would wait for in vain.
TEST(fibers, a_poller_that_was_removed_is_never_due) {
  poller_list pollers;
  const unsigned number = pollers.add([] { return std::chrono::nanoseconds(0); });
  EXPECT_EQ(pollers.serve(1), 1u);
  pollers.remove(number);
  pollers.soon(number);
  EXPECT_EQ(pollers.serve(2), 0u);
  EXPECT_EQ(pollers.due_ns(), poller_list::none);
}

TEST(fibers, blocking_calls_run_elsewhere_while_other_fibers_run) {
  scheduler workers(with_workers(1));
  std::atomic<bool> other_ran = false;
  workers
      .spawn([&] {
        const std::thread::id mine = std::this_thread::get_id();
        handle other = workers.spawn([&] { other_ran = true; });
        const int value = blocking([&] {
          EXPECT_NE(std::this_thread::get_id(), mine);
          EXPECT_FALSE(on_fiber());
          EXPECT_TRUE(eventually([&] { return other_ran.load(); }));
          return 5;
        });
        EXPECT_EQ(value, 5);
        EXPECT_THROW(blocking([] { throw std::runtime_error("refused"); }), std::runtime_error);
      })
      .join();
  EXPECT_EQ(blocking([] { return std::string("on a thread"); }), "on a thread");
  EXPECT_EQ(workers.snapshot().blocking_calls, 2u);
}

TEST(fibers, more_blocking_calls_than_helpers_take_turns) {
  scheduler_options chosen = with_workers(2);
  chosen.most_helpers = 3;
  scheduler workers(chosen);
  std::atomic<int> now = 0;
  std::atomic<int> most = 0;
  std::vector<handle> all;
  for (int i = 0; i < 40; ++i) {
    all.push_back(workers.spawn([&] {
      blocking([&] {
        const int here = ++now;
        int seen = most;
        while (seen < here && !most.compare_exchange_weak(seen, here)) continue;
        std::this_thread::sleep_for(200us);
        --now;
      });
    }));
  }
  all.clear();
  EXPECT_LE(most, 3);
  EXPECT_LE(workers.snapshot().helpers, 3u);
}

// Two fail to start one at the same time: neither waits for the thread of the other.
TEST(fibers, blocking_calls_are_made_where_no_thread_can_be_started) {
  scheduler workers(with_workers(2));
  std::atomic<unsigned> made = 0;
  std::vector<handle> all;
  {
    const no_threads full;
    for (unsigned round = 1; round <= scaled(100, 5); ++round) {
      for (unsigned i = 0; i < 2; ++i) all.push_back(workers.spawn([&] { blocking([&] { ++made; }); }));
      if (!eventually([&] { return made == 2 * round; })) break;
    }
    EXPECT_EQ(made, all.size());
  }
  workers.spawn([&] { blocking([] {}); }).join();  // which starts a thread for those that wait
}

// A call that waited for another's thread leaves no more threads than there were.
TEST(fibers, blocking_calls_have_a_thread_each_after_one_was_refused) {
  scheduler workers(with_workers(1));
  std::atomic<bool> started = false;
  std::atomic<bool> goes_on = false;
  handle first = workers.spawn([&] {
    blocking([&] {
      started = true;
      EXPECT_TRUE(eventually([&] { return goes_on.load(); }));
    });
  });
  ASSERT_TRUE(eventually([&] { return started.load(); }));
  handle second;
  {
    const no_threads full;
    second = workers.spawn([&] { blocking([] {}); });
    workers.spawn([] {}).join();  // then the only worker has left the second waiting
  }
  goes_on = true;
  first.join();
  second.join();
  EXPECT_EQ(workers.snapshot().helpers, 1u);
  std::atomic<int> side_by_side = 0;
  std::vector<handle> both;
  for (int i = 0; i < 2; ++i) {
    both.push_back(workers.spawn([&] {
      blocking([&] {
        ++side_by_side;
        EXPECT_TRUE(eventually([&] { return side_by_side == 2; }));
      });
    }));
  }
}

TEST(fibers, are_switched_inside_catch_blocks_and_each_keeps_its_exception) {
  scheduler workers(with_workers(2));
  std::vector<handle> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(workers.spawn([i] {
      try {
        throw i;
      } catch (int caught) {
        EXPECT_EQ(caught, i);
        for (int k = 0; k < 10; ++k) {
          yield();
          try {
            throw std::to_string(i);
          } catch (const std::string& inner) {
            yield();
            EXPECT_EQ(inner, std::to_string(i));
          }
        }
        try {
          throw;
        } catch (int again) {
          EXPECT_EQ(again, i);
        }
      }
      EXPECT_EQ(std::uncaught_exceptions(), 0);
    }));
  }
}

TEST(fibers, a_hundred_thousand_live_at_once) {
  const unsigned count = scaled(100'000, 50);
  scheduler workers(with_workers(2));
  std::atomic<unsigned> waiting = 0;
  semaphore go;
  std::vector<handle> all;
  all.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    all.push_back(workers.spawn([&] { ++waiting, go.acquire(); }));
  }
  ASSERT_TRUE(eventually([&] { return waiting == count; }));
  go.release(count);
  all.clear();
  EXPECT_EQ(workers.snapshot().ended, count);
  EXPECT_EQ(workers.snapshot().spawned, count);
}

TEST(fibers, several_schedulers_wake_each_others) {
  scheduler one(with_workers(1));
  scheduler other(with_workers(1));
  semaphore ping;
  semaphore pong;
  handle a = one.spawn([&] {
    for (int i = 0; i < 200; ++i) ping.release(), pong.acquire();
  });
  handle b = other.spawn([&] {
    for (int i = 0; i < 200; ++i) ping.acquire(), pong.release();
  });
  a.join();
  b.join();
}

TEST(fibers, a_request_to_yield_is_seen_until_it_is_withdrawn) {
  scheduler workers(with_workers(1));
  EXPECT_FALSE(workers.should_yield());
  workers.request_yield();
  bool evictor_ran = false;
  workers
      .spawn([&] {
        handle evictor = workers.spawn([&] { evictor_ran = true, workers.withdraw_yield_request(); },
                                       {.level = priority::runtime, .name = "evictor"});
        unsigned guards = 0;
        while (workers.should_yield() && guards++ < 1000) yield();
        EXPECT_TRUE(evictor_ran);
      })
      .join();
  EXPECT_FALSE(workers.should_yield());
}

using fibers_death = ::testing::Test;

TEST_F(fibers_death, an_exception_that_leaves_a_fiber_stops_the_program_and_names_it) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        scheduler workers(with_workers(1));
        workers.spawn([] { throw std::runtime_error("disk on fire"); }, {.name = "writer"}).join();
      },
      "fiber 'writer' \\(number 1\\) ended by an exception: disk on fire");
}

}  // namespace
}  // namespace far::fiber
