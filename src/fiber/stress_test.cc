// Fibers and OS threads do random things with everything in this folder; sums at the end tell whether anything was
// lost.
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "fiber/blocking.h"
#include "fiber/channel.h"
#include "fiber/condition_variable.h"
#include "fiber/identity.h"
#include "fiber/mutex.h"
#include "fiber/semaphore.h"
#include "tests/support/fiber_runs.h"

namespace far::fiber {
namespace {

using namespace testing;

class stress {
 public:
  stress(unsigned worker_count, std::uint64_t seed) : seed_(seed), workers_(with_workers(worker_count)) {}

  void run(unsigned fibers, unsigned threads, unsigned operations) {
    std::vector<handle> all;
    std::vector<std::thread> plain;
    for (unsigned i = 0; i < fibers; ++i) {
      const priority level = i % 5 == 0 ? priority::runtime : priority::normal;
      all.push_back(workers_.spawn([this, i, operations] { live(i, operations); }, {.level = level}));
    }
    for (unsigned i = 0; i < threads; ++i) plain.emplace_back([this, i, operations] { live(1000 + i, operations); });
    for (std::thread& one : plain) one.join();
    for (handle& one : all) ASSERT_TRUE(one.join_for(patience)) << "somebody waits for ever";
    channel_.close();
    while (const auto item = channel_.receive()) received_ += *item;
    EXPECT_EQ(received_, sent_);
    EXPECT_EQ(first_, second_);
    EXPECT_EQ(first_, added_);
    for (unsigned i = 0; i < permits; ++i) EXPECT_TRUE(semaphore_.try_acquire());
    EXPECT_FALSE(semaphore_.try_acquire());
    EXPECT_EQ(children_ended_, children_spawned_);
  }

 private:
  static constexpr unsigned permits = 5;
  using random = std::mt19937_64;

  static std::chrono::microseconds up_to(random& draw, unsigned most) {
    return std::chrono::microseconds(draw() % (most + 1));
  }

  void live(unsigned index, unsigned operations) {
    random draw(seed_ * 10'007 + index);
    for (unsigned k = 0; k < operations; ++k) {
      switch (draw() % 10) {
        case 0: yield(); break;
        case 1: sleep_for(up_to(draw, 100)); break;
        case 2: add(draw); break;
        case 3: admit(draw); break;
        case 4: send(draw); break;
        case 5: receive(draw); break;
        case 6: notify(draw); break;
        case 7: in_scope(draw); break;
        case 8: have_child(draw); break;
        default: call(draw); break;
      }
    }
  }

  void add(random& draw) {
    std::unique_lock guard(mutex_, std::defer_lock);
    if (draw() % 2 == 0) {
      guard.lock();
    } else if (!guard.try_lock_for(up_to(draw, 50))) {
      return;
    }
    ++first_;
    if (draw() % 4 == 0) yield();
    ++second_;
    ++added_;
  }

  void admit(random& draw) {
    if (draw() % 2 == 0) {
      semaphore_.acquire();
    } else if (!semaphore_.try_acquire_for(up_to(draw, 50))) {
      return;
    }
    if (draw() % 4 == 0) sleep_for(up_to(draw, 20));
    semaphore_.release();
  }

  void send(random& draw) {
    const std::uint64_t item = draw() % 1000;
    if (channel_.send_for(std::uint64_t{item}, up_to(draw, 200))) sent_ += item;
  }

  void receive(random& draw) {
    if (const auto item = channel_.receive_for(up_to(draw, 200))) received_ += *item;
  }

  void notify(random& draw) {
    std::unique_lock guard(mutex_);
    if (draw() % 2 == 0) {
      static_cast<void>(changed_.wait_for(guard, up_to(draw, 100)));
    } else if (draw() % 2 == 0) {
      changed_.notify_one();
    } else {
      changed_.notify_all();
    }
  }

  static void in_scope(random& draw) {
    const scope_mark scope;
    if (draw() % 2 == 0) yield();
  }

  void have_child(random& draw) {
    ++children_spawned_;
    const auto pause = up_to(draw, 50);
    handle child = workers_.spawn([this, pause] {
      sleep_for(pause);
      ++children_ended_;
    });
    if (draw() % 3 == 0) static_cast<void>(child.join_for(up_to(draw, 60)));
  }

  static void call(random& draw) {
    if (draw() % 8 != 0) return;
    const std::uint64_t value = draw();
    EXPECT_EQ(blocking([value] { return value + 1; }), value + 1);
  }

  const std::uint64_t seed_;
  mutex mutex_;
  condition_variable changed_;
  semaphore semaphore_{permits};
  channel<std::uint64_t> channel_{7};
  std::uint64_t first_ = 0;
  std::uint64_t second_ = 0;
  std::atomic<std::uint64_t> added_{0};
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
  std::atomic<std::uint64_t> children_spawned_{0};
  std::atomic<std::uint64_t> children_ended_{0};
  scheduler workers_;  // last: it ends first
};

// FAR_FIBER_SEED repeats a run as far as the system's own scheduling allows.
std::uint64_t seed() {
  const char* const given = std::getenv("FAR_FIBER_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

TEST(fiber_stress, random_operations_lose_nothing) {
  const std::uint64_t chosen = seed();
  SCOPED_TRACE("FAR_FIBER_SEED=" + std::to_string(chosen));
  for (const unsigned workers : {1u, 2u, 4u}) {
    stress all(workers, chosen + workers);
    all.run(scaled(100, 2), 3, scaled(200, 2));
  }
}

}  // namespace
}  // namespace far::fiber
