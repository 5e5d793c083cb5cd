// Mutex, condition variable, semaphore and channel, between fibers, between OS threads, and mixed.
#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fiber/channel.h"
#include "fiber/condition_variable.h"
#include "fiber/mutex.h"
#include "fiber/semaphore.h"
#include "tests/support/fiber_runs.h"

namespace far::fiber {
namespace {

using namespace testing;

enum class who { fibers, threads, mixed };

// Runs `body` `count` times at once.
void run_all(who runs, unsigned count, const std::function<void(unsigned)>& body) {
  scheduler workers(with_workers(2));
  std::vector<handle> fibers;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) {
    if (runs == who::fibers || (runs == who::mixed && i % 2 == 0)) {
      fibers.push_back(workers.spawn([&body, i] { body(i); }));
    } else {
      threads.emplace_back([&body, i] { body(i); });
    }
  }
  for (std::thread& one : threads) one.join();
}

struct synchronisation : ::testing::TestWithParam<who> {};

TEST_P(synchronisation, a_mutex_lets_one_in_at_a_time) {
  mutex lock;
  std::uint64_t inside = 0;
  std::uint64_t total = 0;
  const unsigned rounds = scaled(2000, 10);
  run_all(GetParam(), 8, [&](unsigned) {
    for (unsigned k = 0; k < rounds; ++k) {
      const std::lock_guard guard(lock);
      EXPECT_EQ(++inside, 1u);
      if (k % 16 == 0) yield();
      ++total;
      --inside;
    }
  });
  EXPECT_EQ(total, 8u * rounds);
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST_P(synchronisation, a_mutex_is_given_up_at_the_deadline) {
  mutex lock;
  lock.lock();
  run_all(GetParam(), 4, [&](unsigned) { EXPECT_FALSE(lock.try_lock_for(1ms)); });
  lock.unlock();
  run_all(GetParam(), 4, [&](unsigned) {
    ASSERT_TRUE(lock.try_lock_for(patience));
    lock.unlock();
  });
}

TEST_P(synchronisation, short_deadlines_and_hand_overs_race_without_losing_the_mutex) {
  mutex lock;
  std::uint64_t total = 0;
  std::atomic<std::uint64_t> locked = 0;
  const unsigned rounds = scaled(500, 5);
  run_all(GetParam(), 8, [&](unsigned i) {
    for (unsigned k = 0; k < rounds; ++k) {
      if (!lock.try_lock_for(std::chrono::microseconds((i * 7 + k) % 30))) continue;
      ++total;
      ++locked;
      if (k % 8 == 0) sleep_for(5us);
      lock.unlock();
    }
  });
  EXPECT_EQ(total, locked);
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST_P(synchronisation, a_condition_variable_moves_a_bounded_buffer) {
  mutex lock;
  condition_variable changed;
  unsigned full = 0;
  std::uint64_t put = 0;
  std::uint64_t taken = 0;
  const unsigned rounds = scaled(1000, 10);
  run_all(GetParam(), 8, [&](unsigned i) {
    for (unsigned k = 0; k < rounds; ++k) {
      std::unique_lock guard(lock);
      if (i / 2 % 2 == 0) {
        changed.wait(guard, [&] { return full < 3; });
        ++full, ++put;
      } else {
        changed.wait(guard, [&] { return full > 0; });
        --full, ++taken;
      }
      guard.unlock();
      changed.notify_all();
    }
  });
  EXPECT_EQ(put, 4u * rounds);
  EXPECT_EQ(taken, put);
}

TEST_P(synchronisation, notify_one_wakes_one_and_notify_all_wakes_all) {
  mutex lock;
  condition_variable turn;
  unsigned waiting = 0;
  unsigned awake = 0;
  const auto see = [&](unsigned& number, unsigned wanted) {
    return eventually([&] {
      const std::lock_guard guard(lock);
      return number == wanted;
    });
  };
  run_all(GetParam(), 9, [&](unsigned i) {
    if (i < 8) {
      std::unique_lock guard(lock);
      ++waiting;
      turn.wait(guard);
      ++awake;
      return;
    }
    ASSERT_TRUE(see(waiting, 8));
    turn.notify_one();
    ASSERT_TRUE(see(awake, 1));
    turn.notify_one();
    ASSERT_TRUE(see(awake, 2));
    turn.notify_all();
    ASSERT_TRUE(see(awake, 8));
  });
}

// Some waits come to their deadline meanwhile.
TEST_P(synchronisation, a_condition_variable_may_be_destroyed_once_all_are_notified) {
  mutex lock;
  auto turn = std::make_unique<condition_variable>();
  unsigned waiting = 0;
  unsigned round = 0;
  const unsigned rounds = scaled(400, 10);
  run_all(GetParam(), 6, [&](unsigned i) {
    if (i > 0) {
      std::unique_lock guard(lock);
      while (round < rounds) {
        condition_variable& mine = *turn;
        const unsigned now = round;
        ++waiting;
        if (i % 2 == 0) {
          mine.wait(guard);
        } else {
          static_cast<void>(mine.wait_for(guard, 50us));
        }
        if (round == now) --waiting;  // the deadline came first
      }
      return;
    }
    while (true) {
      std::unique_lock guard(lock);
      if (waiting < 3) {
        guard.unlock();
        yield();
        continue;
      }
      waiting = 0;
      ++round;
      const auto old = std::exchange(turn, std::make_unique<condition_variable>());
      old->notify_all();
      guard.unlock();
      if (round == rounds) return;
    }
  });
}

TEST(condition_variable, is_not_used_any_more_when_it_has_been_destroyed) {
  alignas(condition_variable) std::array<std::byte, sizeof(condition_variable)> room;
  auto* const turn = new (room.data()) condition_variable;
  std::array<std::byte, sizeof room> left;
  left.fill(std::byte{0x55});
  left[0] = std::byte{0};  // its lock is free
  mutex lock;
  unsigned waiting = 0;
  scheduler workers(with_workers(1));
  const auto wait = [&] {
    std::unique_lock guard(lock);
    ++waiting;
    turn->wait(guard);
  };
  std::vector<handle> all;
  for (unsigned i = 0; i < 3; ++i) all.push_back(workers.spawn(wait));
  workers
      .spawn([&] {
        while (waiting < 3) yield();
        turn->notify_all();
        turn->~condition_variable();
        room = left;
      })
      .join();
  all.clear();
  EXPECT_TRUE(room == left);
}

TEST_P(synchronisation, a_wait_for_a_condition_ends_at_its_deadline) {
  mutex lock;
  condition_variable never_notified;
  run_all(GetParam(), 4, [&](unsigned) {
    std::unique_lock guard(lock);
    const time_point deadline = after(2ms);
    EXPECT_FALSE(never_notified.wait_until(guard, deadline));
    EXPECT_GE(std::chrono::steady_clock::now(), deadline);
    EXPECT_FALSE(never_notified.wait_for(guard, 1ms, [] { return false; }));
    EXPECT_TRUE(never_notified.wait_for(guard, 1ms, [] { return true; }));
    EXPECT_TRUE(guard.owns_lock());
  });
}

TEST_P(synchronisation, a_semaphore_admits_as_many_as_it_has_permits) {
  semaphore permits(3);
  std::atomic<int> inside = 0;
  const unsigned rounds = scaled(1000, 10);
  run_all(GetParam(), 8, [&](unsigned) {
    for (unsigned k = 0; k < rounds; ++k) {
      if (k % 3 == 0) {
        while (!permits.try_acquire_for(50us)) continue;
      } else {
        permits.acquire();
      }
      EXPECT_LE(++inside, 3);
      if (k % 16 == 0) yield();
      --inside;
      permits.release();
    }
  });
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(permits.try_acquire());
  EXPECT_FALSE(permits.try_acquire());
  EXPECT_FALSE(permits.try_acquire_for(1ms));
}

TEST_P(synchronisation, a_semaphore_may_be_destroyed_by_whoever_acquired_it) {
  const unsigned rounds = scaled(2000, 10);
  channel<semaphore*> calls(4);
  run_all(GetParam(), 2, [&](unsigned i) {
    for (unsigned k = 0; k < rounds; ++k) {
      if (i == 0) {
        const auto answered = std::make_unique<semaphore>();
        calls.send(answered.get());
        answered->acquire();
      } else {
        (*calls.receive())->release();
      }
    }
  });
}

TEST_P(synchronisation, a_channel_keeps_the_order_of_each_sender_and_loses_nothing) {
  channel<std::pair<unsigned, unsigned>> items(5);
  const unsigned rounds = scaled(2000, 10);
  std::atomic<std::uint64_t> received = 0;
  std::atomic<unsigned> sending = 4;
  run_all(GetParam(), 8, [&](unsigned i) {
    if (i / 2 % 2 == 0) {
      for (unsigned k = 1; k <= rounds; ++k) EXPECT_TRUE(items.send({i, k}));
      if (--sending == 0) items.close();
    } else {
      unsigned last[8] = {};
      while (const auto item = items.receive()) {
        EXPECT_GT(item->second, last[item->first]);
        last[item->first] = item->second;
        ++received;
      }
    }
  });
  EXPECT_EQ(received, 4u * rounds);
}

TEST_P(synchronisation, closing_a_channel_ends_every_wait) {
  channel<int> empty(1);
  channel<int> full(1);
  EXPECT_TRUE(full.send(1));
  std::atomic<unsigned> waiting = 0;
  run_all(GetParam(), 6, [&](unsigned i) {
    if (i == 5) {
      ASSERT_TRUE(eventually([&] { return waiting == 5; }));
      empty.close();
      full.close();
      return;
    }
    ++waiting;
    if (i % 2 == 0) {
      EXPECT_FALSE(empty.receive().has_value());
    } else {
      EXPECT_FALSE(full.send(2));
    }
  });
  EXPECT_EQ(full.receive(), 1);
  EXPECT_FALSE(full.receive().has_value());
  EXPECT_TRUE(full.closed());
}

INSTANTIATE_TEST_SUITE_P(
    between, synchronisation, ::testing::Values(who::fibers, who::threads, who::mixed), [](const auto& chosen) {
      return std::string(chosen.param == who::fibers ? "fibers" : chosen.param == who::threads ? "threads" : "both");
    });

// A lock and a condition that say who notified whom when. For one thread.
struct watched_mutex {
  static inline bool is_held = false;
  void lock() { is_held = true; }
  void unlock() { is_held = false; }
};
struct watched_condition {
  static inline unsigned held = 0;
  static inline unsigned released = 0;
  template <typename Predicate>
  bool wait_until(watched_mutex& /*lock*/, time_point /*deadline*/, Predicate holds) {
    return holds();
  }
  void notify_one() { ++(watched_mutex::is_held ? held : released); }
  void notify_all() { notify_one(); }
};

// The receiver of the last item may destroy the channel as soon as it can lock the mutex.
TEST(channel, notifies_before_it_unlocks) {
  detail::basic_channel<int, watched_mutex, watched_condition> items(1);
  EXPECT_TRUE(items.send(1));
  EXPECT_EQ(items.receive(), 1);
  items.close();
  EXPECT_EQ(watched_condition::held, 4u);
  EXPECT_EQ(watched_condition::released, 0u);
}

TEST(channel, carries_what_can_only_be_moved_and_leaves_it_when_it_cannot) {
  channel<std::unique_ptr<int>> items(1);
  EXPECT_TRUE(items.send(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(items.send_for(std::move(second), 1ms));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(**items.receive(), 1);
  EXPECT_FALSE(items.receive_for(1ms).has_value());
}

// Throws at the moves that it is told to.
struct fragile_item {
  static inline unsigned moves_to_go = 0;  // 0: no move throws

  fragile_item() = default;
  fragile_item(fragile_item&& /*other*/) {
    if (moves_to_go > 0 && --moves_to_go == 0) throw std::runtime_error("it broke");
  }
  fragile_item& operator=(fragile_item&&) = default;
};

// The one after it has the room, or the item, that was announced to it.
TEST(channel, whoever_fails_to_move_an_item_keeps_nobody_waiting) {
  scheduler workers(with_workers(1));
  workers
      .spawn([&] {
        channel<fragile_item> items(1);
        EXPECT_TRUE(items.send(fragile_item()));
        unsigned failed = 0;
        unsigned sent = 0;
        unsigned received = 0;
        const auto send = [&] {
          try {
            sent += items.send_for(fragile_item(), patience) ? 1 : 0;
          } catch (const std::runtime_error&) {
            ++failed;
          }
        };
        const auto receive = [&] {
          try {
            received += items.receive_for(patience).has_value() ? 1 : 0;
          } catch (const std::runtime_error&) {
            ++failed;
          }
        };
        {
          const handle first = workers.spawn(send);
          const handle second = workers.spawn(send);
          while (workers.snapshot().parks < 2) yield();
          EXPECT_TRUE(items.receive().has_value());
          fragile_item::moves_to_go = 1;
        }
        EXPECT_EQ(failed, 1u);
        EXPECT_EQ(sent, 1u);
        EXPECT_TRUE(items.receive().has_value());
        const std::uint64_t parks = workers.snapshot().parks;
        {
          const handle first = workers.spawn(receive);
          const handle second = workers.spawn(receive);
          while (workers.snapshot().parks < parks + 2) yield();
          EXPECT_TRUE(items.send(fragile_item()));
          fragile_item::moves_to_go = 1;
        }
        EXPECT_EQ(failed, 2u);
        EXPECT_EQ(received, 1u);
      })
      .join();
}

TEST(waiter, keeps_a_wake_that_comes_before_the_park) {
  waiter mine;
  EXPECT_TRUE(mine.wake());
  EXPECT_FALSE(mine.wake());
  mine.park();
  scheduler workers(with_workers(1));
  workers
      .spawn([] {
        waiter early;
        early.wake();
        EXPECT_TRUE(early.park_until(time_point{}));
        waiter late;
        EXPECT_FALSE(late.park_until(after(1ms)));
        EXPECT_FALSE(late.wake());
      })
      .join();
}

TEST(mutex, is_handed_to_whoever_waited_longest) {
  scheduler workers(with_workers(1));
  std::string order;
  workers
      .spawn([&] {
        mutex lock;
        lock.lock();
        std::vector<handle> all;
        for (const char name : {'a', 'b', 'c'}) {
          all.push_back(workers.spawn([&order, &lock, name] {
            const std::lock_guard guard(lock);
            order += name;
          }));
        }
        while (workers.snapshot().parks < 3) yield();
        lock.unlock();
        EXPECT_FALSE(lock.try_lock());
        all.clear();
      })
      .join();
  EXPECT_EQ(order, "abc");
}

TEST(mutex_death, must_not_be_destroyed_while_somebody_waits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        wait_list list;
        waiter mine;
        list.append(mine);
        list.~wait_list();
      },
      "destroyed while somebody waits");
}

TEST(condition_variable_death, must_not_be_destroyed_while_somebody_waits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        mutex lock;
        condition_variable turn;
        bool waits = false;
        std::thread other([&] {
          std::unique_lock guard(lock);
          waits = true;
          turn.wait(guard);
        });
        static_cast<void>(eventually([&] {
          const std::lock_guard guard(lock);
          return waits;
        }));
        turn.~condition_variable();
      },
      "destroyed while somebody waits");
}

}  // namespace
}  // namespace far::fiber
