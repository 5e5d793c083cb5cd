// Scopes that log what they dereference, after a long one of the same owner. Needs permission for userfaultfd.
#include "heap/scope_log.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/detail/scope_record.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/unique_ptr.h"
#include "heap/grace_periods.h"
#include "tests/support/real_pager.h"

namespace far::heap {
namespace {

using namespace std::chrono_literals;
using detail::open_scope;

constexpr std::chrono::minutes patience{2};  // a thread may have to wait for a busy machine

bool is_over_soon(grace_periods& kind, std::chrono::milliseconds at_most) {
  const grace_number number = kind.stamp([](grace_number) { return true; });
  return kind.wait_until_over(number, at_most);
}

// Requires: there is a grace period under way, or about to begin.
bool is_found_long(const detail::scope_record& owner) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (owner.scopes_to_log == 0 && std::chrono::steady_clock::now() < deadline) scopes_without_log.advance();
  return owner.scopes_to_log > 0;
}

// A thread that does one step after the other, each when go_on() allows it.
class follower {
 public:
  explicit follower(std::vector<std::function<void()>> steps) : steps_(std::move(steps)) {}
  ~follower() {
    allowed_ = steps_.size();
    thread_.join();
  }
  // Returns when the next step has been done.
  void go_on() {
    const std::size_t next = ++allowed_;
    while (done_ < next) std::this_thread::yield();
  }

 private:
  std::vector<std::function<void()>> steps_;
  std::atomic<std::size_t> allowed_{0};
  std::atomic<std::size_t> done_{0};
  std::thread thread_{[this] {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      while (allowed_ <= i) std::this_thread::yield();
      steps_[i]();
      done_ = i + 1;
    }
  }};
};

TEST(scope_log, pages_do_not_wait_for_scopes_that_follow_a_long_one) {
  std::optional<open_scope> scope;
  const auto open = [&] { scope.emplace(); };
  const auto forget = [] { current_record().scopes_to_log = 0; };
  const auto end = [&] { scope.reset(); };
  const auto end_many_short_ones = [&] {
    for (int i = 0; i < 1'000'000 && current_record().scopes_to_log > 0; ++i) const open_scope one;
  };
  follower other({forget, open, end, open, end, end_many_short_ones, open, end});
  other.go_on();
  other.go_on();
  EXPECT_FALSE(scope->logs());
  EXPECT_FALSE(is_over_soon(scopes_without_log, 5ms));
  EXPECT_TRUE(is_found_long(scope->record()));
  other.go_on();
  other.go_on();
  EXPECT_TRUE(scope->logs());
  EXPECT_TRUE(is_over_soon(scopes_without_log, patience));
  EXPECT_FALSE(is_over_soon(all_scopes, 5ms)) << "what is no page waits for every scope";
  other.go_on();
  EXPECT_TRUE(is_over_soon(all_scopes, patience));
  other.go_on();
  other.go_on();
  EXPECT_FALSE(scope->logs()) << "after many short ones";
  EXPECT_FALSE(is_over_soon(scopes_without_log, 5ms));
}

TEST(scope_log, an_inner_scope_logs_when_the_outermost_does) {
  owner_record& mine = current_record();
  mine.scopes_to_log = 0;  // of the thread that had the record before
  {
    const open_scope outer;
    note_long_scope(mine);
    const open_scope inner;
    EXPECT_FALSE(inner.logs());
    EXPECT_FALSE(mine.is_logging());
  }
  const std::array<std::uint64_t, 2> pages{7, 8};
  {
    const open_scope outer;
    {
      const open_scope inner;
      EXPECT_TRUE(inner.logs());
      log_page(mine, 7);
    }
    EXPECT_TRUE(mine.is_logging());
    EXPECT_EQ(find_held(pages, nullptr).by_scopes, 1u);
    EXPECT_EQ(find_held(pages, nullptr).by_work, 0u);
  }
  EXPECT_EQ(find_held(pages, nullptr).by_scopes, 0u);
}

TEST(scope_log, a_scope_whose_log_is_full_is_waited_for) {
  owner_record& mine = current_record();
  note_long_scope(mine);
  const std::array<std::uint64_t, 2> pages{1, most_logged_pages + 1};
  {
    const open_scope here;
    for (std::uint64_t page = 1; page <= most_logged_pages; ++page) log_page(mine, page);
    EXPECT_TRUE(mine.is_logging());
    log_page(mine, most_logged_pages + 1);
    EXPECT_FALSE(mine.is_logging());
    EXPECT_TRUE(mine.is_open());
    EXPECT_EQ(find_held(pages, nullptr).by_scopes, 1u) << "what it holds it keeps";
    std::thread([] { EXPECT_FALSE(is_over_soon(scopes_without_log, 5ms)); }).join();
  }
  EXPECT_EQ(find_held(pages, nullptr).by_scopes, 0u);
  EXPECT_TRUE(is_over_soon(scopes_without_log, patience));
}

using scope_log_heap = real_pager_test<>;

struct numbers {
  std::array<std::uint64_t, 8> all{};
};

// Beside a scope that stays open, which has used one object of a page and one of pages of its own.
void use_heap_beside_a_scope(bool logs) {
  runtime_options chosen = small_runtime();
  chosen.page_path_share = 2;
  runtime farheap(chosen);
  std::vector<unique_ptr<numbers>> kept;
  for (std::uint64_t i = 0; i < 12'000; ++i) {
    unique_ptr<numbers> one = make_unique<numbers>(farheap, numbers{{i}});
    if (i % 3 == 0) kept.push_back(std::move(one));
  }
  unique_ptr<numbers[]> large = make_unique<numbers[]>(farheap, 200);
  std::optional<scope> here;
  std::array<numbers*, 2> used{};
  owner_record* user = nullptr;
  const auto open = [&] {
    user = &current_record();
    user->scopes_to_log = 0;  // of the thread that had the record before
    here.emplace(farheap);
  };
  const auto use = [&] {
    here.emplace(farheap);
    used = {&kept.front().deref_mut(*here), &large.deref_mut(*here, 150)};
    for (numbers* one : used) one->all[1] = 1;
  };
  const auto write = [&] {
    for (numbers* one : used) one->all[2] = one->all[1] + 1;
    here.reset();
  };
  const auto end = [&] { here.reset(); };
  {
    follower other({open, end, use, write});
    other.go_on();
    if (logs) {
      farheap.evict_all();
      EXPECT_TRUE(is_found_long(*user));
    }
    other.go_on();
    for (const unique_ptr<numbers>& one : kept) static_cast<void>(one.read());
    other.go_on();
    static_cast<void>(farheap.evacuate(0.1));
    const std::uint64_t moved = farheap.statistics().evacuated_objects;
    const std::uint64_t left = farheap.statistics().evicted_pages;
    farheap.evict_all();
    if (logs) {
      EXPECT_GT(moved, 3'000u);
      EXPECT_GT(farheap.statistics().evicted_pages - left, 50u);
    } else {
      EXPECT_EQ(moved, 0u);
      EXPECT_EQ(farheap.statistics().evicted_pages - left, 0u);
    }
    EXPECT_EQ(farheap.statistics().forced_pages, 0u);
    other.go_on();
  }
  EXPECT_EQ(kept.front().read().all[2], 2u);
  EXPECT_EQ(large.read(150).all[2], 2u);
  for (std::uint64_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i].read().all[0], i * 3);
  farheap.validate();
}

TEST_F(scope_log_heap, eviction_and_evacuation_wait_for_a_long_scope) {
  use_heap_beside_a_scope(false);
}
TEST_F(scope_log_heap, and_do_not_wait_for_those_that_follow_it) {
  use_heap_beside_a_scope(true);
}

TEST_F(scope_log_heap, pages_of_large_objects_are_logged) {
  runtime farheap(small_runtime());
  unique_ptr<numbers[]> large = make_unique<numbers[]>(farheap, 200);
  farheap.evict_all();
  note_long_scope(current_record());
  const scope here(farheap);
  numbers& one = large.deref_mut(here, 150);
  const std::uint64_t left = farheap.statistics().evicted_pages;
  farheap.evict_all();
  EXPECT_EQ(farheap.statistics().evicted_pages, left);
  one.all[1] = 7;
  EXPECT_EQ(large.deref(here, 150).all[1], 7u);
}

// Pages leave in the middle of its constructor.
struct slowly_made {
  std::uint64_t first = 1;
  std::uint64_t second = 0;
  explicit slowly_made(runtime& farheap) {
    farheap.evict_all();
    second = first + 1;
  }
};

}  // namespace
}  // namespace far::heap

template <>
inline constexpr bool far::is_relocatable<far::heap::slowly_made> = true;

namespace far::heap {
namespace {

TEST_F(scope_log_heap, objects_that_are_being_made_are_logged) {
  runtime_options chosen = small_runtime();
  chosen.page_path_share = 2;
  runtime farheap(chosen);
  const unique_ptr<numbers> before = make_unique<numbers>(farheap);
  note_long_scope(current_record());
  const unique_ptr<slowly_made> one = make_unique<slowly_made>(farheap, farheap);
  EXPECT_GT(farheap.statistics().evicted_pages, 0u) << "others do leave";
  EXPECT_EQ(one.read().second, 2u);
}

// Two threads, whose scopes all log and are larger than they should be. One writes even objects and one odd ones, so
// neither ever sees the other's half-made changes.
TEST_F(scope_log_heap, nothing_is_lost_under_pressure) {
  runtime_options chosen = small_runtime();
  chosen.far = "memory:";
  runtime farheap(chosen);
  std::vector<unique_ptr<numbers>> all;
  for (std::uint64_t i = 0; i < 400'000; ++i) all.push_back(make_unique<numbers>(farheap, numbers{{i}}));
  const auto run = [&](std::uint64_t first) {
    std::uint64_t wrong = 0;
    for (unsigned round = 0; round < 40; ++round) {
      note_long_scope(current_record());
      const scope here(farheap);
      std::vector<numbers*> held;
      for (std::uint64_t i = first + round * 50; i < all.size(); i += 2'000) held.push_back(&all[i].deref_mut(here));
      for (numbers* one : held) ++one->all[1];
      for (std::uint64_t i = 0; i < 50; ++i)
        wrong += all[(i * 7919 + round * 104'729) % all.size()].read().all[0] > 400'000;
      for (numbers* one : held) wrong += ++one->all[2] != one->all[1];
    }
    return wrong;
  };
  std::uint64_t wrong = 0;
  std::thread other([&] { wrong = run(1); });
  EXPECT_EQ(run(0), 0u);
  other.join();
  EXPECT_EQ(wrong, 0u);
  for (std::uint64_t i = 0; i < all.size(); ++i) {
    const numbers one = all[i].read();
    ASSERT_EQ(one.all[0], i);
    ASSERT_EQ(one.all[1], one.all[2]);
  }
  farheap.validate();
}

}  // namespace
}  // namespace far::heap
