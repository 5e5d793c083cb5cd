// The wake-ups of waiting_fibers, with OS threads in the place of fibers, so that ThreadSanitizer sees all of it.
#include "engine/waiting_fibers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <new>
#include <semaphore>
#include <thread>
#include <vector>

#include "base/check.h"

namespace far::engine {
namespace {

// A wait is a semaphore; every thread is a fiber.
class waiting_threads final : public miss_waiter {
 public:
  bool on_fiber() const noexcept override { return true; }
  read_ahead_state& streams() noexcept override { return streams_; }
  void open(ticket& mine) noexcept override { new (mine.room) std::binary_semaphore(0); }
  void park(ticket& mine, place /*from*/) noexcept override {
    parks.fetch_add(1);
    FAR_CHECK(semaphore_of(mine).try_acquire_for(std::chrono::seconds(60)), "a wake-up was lost");
    close(mine);
  }
  void close(ticket& mine) noexcept override { std::destroy_at(&semaphore_of(mine)); }
  void wake(ticket& one) noexcept override { semaphore_of(one).release(); }
  void poll_soon() noexcept override { polls_wanted.fetch_add(1); }

  std::atomic<unsigned> parks{0};
  std::atomic<unsigned> polls_wanted{0};

 private:
  static std::binary_semaphore& semaphore_of(ticket& one) {
    return *std::launder(reinterpret_cast<std::binary_semaphore*>(one.room));
  }

  read_ahead_state streams_;
};

using reason = waiting_fibers::reason;
constexpr auto from_call = miss_waiter::place::call;

void move_to(residency& pages, page_id page, state to) {
  pages.update(page, [to](page_word word) { return word.with_state(to); });
}

template <typename Predicate>
void wait_until(Predicate holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }
}

TEST(waiting_fibers, a_page_that_is_not_on_its_way_is_not_waited_for) {
  residency pages(1);
  waiting_threads threads;
  waiting_fibers waiting(threads);
  waiting.wait_for_page(pages, 0, from_call);
  EXPECT_EQ(threads.parks, 0u);
}

TEST(waiting_fibers, a_page_that_settles_wakes_those_that_wait_for_it_and_nobody_else) {
  residency pages(600);
  waiting_threads threads;
  waiting_fibers waiting(threads);
  pages.set_listener(waiting);
  // Pages 2 and 258 are in one list.
  const std::vector<page_id> wanted = {2, 258, 2, 3};
  for (const page_id page : {page_id{2}, page_id{258}, page_id{3}}) move_to(pages, page, state::fetching);
  std::atomic<unsigned> went_on{0};
  std::vector<std::thread> running;
  for (const page_id page : wanted) {
    running.emplace_back([&, page] {
      waiting.wait_for_page(pages, page, from_call);
      EXPECT_NE(pages.load(page).where(), state::fetching);
      ++went_on;
    });
  }
  wait_until([&] { return threads.parks == 4; });
  EXPECT_EQ(threads.polls_wanted, 4u) << "somebody must poll for them";
  move_to(pages, 2, state::resident);
  wait_until([&] { return went_on == 2; });
  move_to(pages, 258, state::lost);
  wait_until([&] { return went_on == 3; });
  move_to(pages, 3, state::resident);
  for (std::thread& thread : running) thread.join();
}

// Pages settle at the very moment at which threads begin to wait for them. In every round each wait must end by the one
// change of its page.
TEST(waiting_fibers, no_wake_up_is_lost) {
  constexpr unsigned waiters = 3;
  constexpr unsigned rounds = 3000;
  constexpr page_id page_count = 2;
  residency pages(page_count);
  waiting_threads threads;
  waiting_fibers waiting(threads);
  pages.set_listener(waiting);
  std::barrier together(waiters + 1);
  std::vector<std::thread> running;
  for (unsigned self = 0; self < waiters; ++self) {
    running.emplace_back([&, self] {
      for (unsigned i = 0; i < rounds; ++i) {
        together.arrive_and_wait();
        waiting.wait_for_page(pages, (self + i) % page_count, from_call);
        together.arrive_and_wait();
      }
    });
  }
  for (unsigned i = 0; i < rounds; ++i) {
    for (page_id page = 0; page < page_count; ++page) move_to(pages, page, state::fetching);
    together.arrive_and_wait();
    for (unsigned spins = i % 64; spins > 0; --spins) cpu_relax();
    for (page_id page = 0; page < page_count; ++page) move_to(pages, page, state::resident);
    together.arrive_and_wait();
    for (page_id page = 0; page < page_count; ++page) {
      move_to(pages, page, state::evicting);
      move_to(pages, page, state::remote);
    }
  }
  for (std::thread& thread : running) thread.join();
  EXPECT_GT(threads.parks, 0u);
}

TEST(waiting_fibers, what_is_scarce_goes_to_those_who_came_first) {
  waiting_threads threads;
  waiting_fibers waiting(threads);
  constexpr unsigned count = 5;
  std::atomic<unsigned> went_on{0};
  std::vector<std::thread> running;
  for (unsigned i = 0; i < count; ++i) {
    running.emplace_back([&] {
      waiting.wait_for(reason::frame, from_call);
      ++went_on;
    });
    wait_until([&] { return threads.parks == i + 1; });
  }
  waiting.wake(reason::flight, 7);
  waiting.wake(reason::turn, 7);
  EXPECT_TRUE(waiting.any(reason::frame));
  waiting.wake(reason::frame, 2);
  wait_until([&] { return went_on == 2; });
  running[0].join();
  running[1].join();
  waiting.wake(reason::frame, 100);
  for (unsigned i = 2; i < count; ++i) running[i].join();
  EXPECT_EQ(went_on, count);
  EXPECT_FALSE(waiting.any(reason::frame));
}

}  // namespace
}  // namespace far::engine
