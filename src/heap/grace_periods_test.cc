#include "heap/grace_periods.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "far/detail/scope_record.h"

namespace far::heap {
namespace {

using namespace std::chrono_literals;
using detail::open_scope;

constexpr std::chrono::minutes patience{2};  // a thread may have to wait for a busy machine

// A thread in two scopes, one within the other, until it is told to leave them.
class elsewhere {
 public:
  elsewhere() {
    while (open_.load() != 2) std::this_thread::yield();
  }
  ~elsewhere() {
    leave_to(0);
    thread_.join();
  }
  void end_inner() { leave_to(1); }

 private:
  void leave_to(int left) {
    wanted_.store(left);
    while (open_.load() > left) std::this_thread::yield();
  }
  void stay_until(int left) {
    while (wanted_.load() > left) std::this_thread::yield();
  }

  std::atomic<int> open_{0};
  std::atomic<int> wanted_{2};
  std::thread thread_{[this] {
    {
      const open_scope outer;
      {
        const open_scope inner;
        open_.store(2);
        stay_until(1);
      }
      open_.store(1);
      stay_until(0);
    }
    open_.store(0);
  }};
};

TEST(grace_periods, is_over_at_once_when_no_scope_is_open) {
  const grace_number number = all_scopes.stamp([](grace_number) { return true; });
  EXPECT_FALSE(all_scopes.is_over(number));
  EXPECT_TRUE(all_scopes.wait_until_over(number, patience));
  EXPECT_TRUE(all_scopes.is_over(number));
}

TEST(grace_periods, waits_for_the_outermost_scope_that_was_open) {
  grace_number number = 0;
  {
    elsewhere other;
    number = all_scopes.stamp([](grace_number) { return true; });
    EXPECT_FALSE(all_scopes.wait_until_over(number, 5ms));
    other.end_inner();
    EXPECT_FALSE(all_scopes.wait_until_over(number, 5ms));
  }
  EXPECT_TRUE(all_scopes.wait_until_over(number, patience));
}

TEST(grace_periods, does_not_wait_for_scopes_that_open_later) {
  const grace_number number = [] {
    const open_scope mine;
    const grace_number asked = all_scopes.stamp([](grace_number) { return true; });
    all_scopes.advance();
    EXPECT_FALSE(all_scopes.is_over(asked));
    return asked;
  }();
  const elsewhere other;
  EXPECT_TRUE(all_scopes.wait_until_over(number, patience));
}

TEST(grace_periods, does_not_wait_for_the_callers_own_scope) {
  const grace_number number = all_scopes.stamp([](grace_number) { return true; });
  const open_scope mine;
  const auto start = std::chrono::steady_clock::now();
  const bool over = all_scopes.wait_until_over(number, 2 * patience);
  EXPECT_LT(std::chrono::steady_clock::now() - start, patience);
  static_cast<void>(over);  // it may have begun before
}

std::size_t count_records() {
  std::size_t count = 0;
  for (const owner_record* one = first_record(); one != nullptr; one = one->next) ++count;
  return count;
}

// Opens a scope when its thread's variables are destroyed.
struct late_scope {
  ~late_scope() { const open_scope late; }
};

TEST(grace_periods, scopes_of_threads_that_end_leave_no_records_behind) {
  const auto run = [](std::size_t threads) {
    for (std::size_t i = 0; i < threads; ++i) {
      std::thread([] {
        thread_local late_scope last;  // made first, so destroyed last
        static_cast<void>(&last);
        const open_scope here;
      }).join();
    }
  };
  run(2);
  const std::size_t before = count_records();
  run(20);
  EXPECT_EQ(count_records(), before);
}

// Readers follow a word to one of a few places, in scopes; a writer swings the word, and takes the old place for itself
// when the period is over.
TEST(grace_periods, nobody_is_left_in_a_place_when_its_period_is_over) {
  constexpr unsigned rounds = 5'000;
  constexpr std::uint64_t taken = ~std::uint64_t{0};
  std::array<std::atomic<std::uint64_t>, 4> places{};
  std::atomic<std::size_t> word{0};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> reads{0};
  std::vector<std::thread> readers;
  for (unsigned i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        const open_scope here;
        const std::size_t at = word.load(std::memory_order_acquire);
        for (unsigned look = 0; look < 8; ++look) wrong += places[at].load(std::memory_order_relaxed) == taken ? 1 : 0;
        reads.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  while (reads == 0) std::this_thread::yield();
  const auto deadline = std::chrono::steady_clock::now() + 1s;
  unsigned done = 0;
  for (; done < rounds && (done < 6 || std::chrono::steady_clock::now() < deadline); ++done) {
    const std::size_t from = word.load(std::memory_order_relaxed);
    const grace_number number = all_scopes.stamp([&](grace_number) {
      word.store((from + 1) % places.size(), std::memory_order_release);
      return true;
    });
    while (!all_scopes.is_over(number)) all_scopes.advance();
    places[from].store(taken, std::memory_order_relaxed);
    places[from].exchange(0, std::memory_order_seq_cst);  // when others can see the store before it
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(reads, 0u);
  EXPECT_GT(done, 5u);  // a reader that is preempted in its scope holds one up for a time slice
}

}  // namespace
}  // namespace far::heap
