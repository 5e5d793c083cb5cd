// Evacuation on the real kernel, beside a program that goes on. Needs permission for userfaultfd.
#include "heap/evacuator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/runtime.h"
#include "far/shared_ptr.h"
#include "far/tag.h"
#include "far/unique_ptr.h"
#include "heap/heap.h"
#include "heap/scope_records.h"
#include "heap/segments.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

using evacuator_test = heap::real_pager_test<>;

struct item {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 7> content{};

  explicit item(std::uint64_t value) { set(value); }
  void set(std::uint64_t value) {
    number = value;
    for (std::size_t i = 0; i < content.size(); ++i) content[i] = value * 31 + i;
  }
  [[nodiscard]] bool is(std::uint64_t value) const {
    bool right = number == value;
    for (std::size_t i = 0; i < content.size(); ++i) right &= content[i] == value * 31 + i;
    return right;
  }
};

// The owner of an item, with a page to itself.
struct holder {
  unique_ptr<item> mine;
  std::array<std::uint64_t, 500> content{};
};

// A list in the far heap, whose pointers are in far objects.
struct node {
  std::uint64_t number = 0;
  unique_ptr<node> next;
};

// Fills its page; the test says what happens when the pointer in it is visited next.
struct watched_holder {
  unique_ptr<item> mine;
  std::array<std::uint64_t, 500> content{};
};
std::function<void(watched_holder&)> on_visit;

}  // namespace

template <>
struct pointers_of<watched_holder> {
  static void visit(watched_holder& in, auto&& pointer) {
    if (const auto now = std::exchange(on_visit, nullptr); now != nullptr) now(in);
    pointer(in.mine);
  }
};
template <>
struct pointers_of<holder> {
  static void visit(holder& in, auto&& pointer) { pointer(in.mine); }
};
template <>
struct pointers_of<node> {
  static void visit(node& in, auto&& pointer) { pointer(in.next); }
};

namespace {

std::vector<unique_ptr<item>> fill(runtime& farheap, std::size_t count) {
  std::vector<unique_ptr<item>> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) all.push_back(make_unique<item>(farheap, i));
  return all;
}

std::size_t count_wrong(runtime& farheap, const std::vector<unique_ptr<item>>& all) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i]) continue;
    const scope here(farheap);
    wrong += !all[i].deref(here).is(i);
  }
  return wrong;
}

TEST_F(evacuator_test, frees_segments_that_are_mostly_garbage) {
  runtime farheap(heap::small_runtime(64 * mib));
  std::vector<unique_ptr<item>> all = fill(farheap, 200'000);  // 16 MiB
  const std::uint64_t before = farheap.statistics().local_bytes;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % 5 != 0) all[i].reset();
  }
  EXPECT_GT(farheap.evacuate(0.5), 40u);
  EXPECT_EQ(count_wrong(farheap, all), 0u);
  const runtime_statistics now = farheap.statistics();
  EXPECT_LT(now.local_bytes, before / 2);
  EXPECT_GE(now.evacuated_objects, all.size() / 5 * 9 / 10);
  farheap.validate();
}

TEST_F(evacuator_test, leaves_objects_that_a_scope_holds) {
  runtime farheap(heap::small_runtime(64 * mib));
  std::vector<unique_ptr<item>> all = fill(farheap, 50'000);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % 2 != 0) all[i].reset();
  }
  {
    const scope here(farheap);
    const item& held = all[20'000].deref(here);
    static_cast<void>(farheap.evacuate(0));
    EXPECT_EQ(&held, &all[20'000].deref(here));
    EXPECT_TRUE(held.is(20'000));
  }
  const item* before = nullptr;
  {
    const scope here(farheap);
    before = &all[20'000].deref(here);
  }
  static_cast<void>(farheap.evacuate(0));
  const scope here(farheap);
  EXPECT_NE(before, &all[20'000].deref(here)) << "without a scope it moves";
  farheap.validate();
}

// Where a pointer's object is, without a use of it.
std::uintptr_t place_of(const unique_ptr<item>& one) {
  std::uint64_t value = 0;
  std::memcpy(&value, &one, sizeof value);
  return detail::word::address(value);
}

// What was used since its page came lies together afterwards, apart from the rest, and still counts as used.
TEST_F(evacuator_test, used_objects_move_together_with_their_cards) {
  runtime farheap(heap::small_runtime(64 * mib));
  farheap.set_page_path_share(0);  // pages come back whole, and their objects unused
  const std::vector<unique_ptr<item>> all = fill(farheap, 50'000);
  farheap.evict_all();
  farheap.set_page_path_share(0.8);  // from here on it matters what is used
  const auto is_used = [](std::size_t number) { return number % 10 == 3; };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!is_used(i)) continue;
    const scope here(farheap);
    ASSERT_TRUE(all[i].deref(here).is(i));
  }
  std::vector<std::uintptr_t> before;
  for (const unique_ptr<item>& one : all) before.push_back(place_of(one));
  static_cast<void>(farheap.evacuate(0));

  const heap::page_table& pages = detail::heap_of(farheap).pages;
  std::set<std::size_t> of_used;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uintptr_t now = place_of(all[i]);
    if (now != before[i] && is_used(i)) of_used.insert(pages.page_of(now));
  }
  std::size_t moved = 0;
  std::size_t among_used = 0;
  std::size_t wrong_cards = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uintptr_t now = place_of(all[i]);
    if (now == before[i]) continue;
    ++moved;
    if (!is_used(i)) among_used += of_used.count(pages.page_of(now));
    wrong_cards += pages.is_used(now) == is_used(i) ? 0 : 1;
  }
  EXPECT_GT(moved, all.size() * 9 / 10) << "all but those of the segment that is still open";
  EXPECT_EQ(among_used, 0u);
  EXPECT_EQ(wrong_cards, 0u);
  EXPECT_EQ(count_wrong(farheap, all), 0u);
  farheap.validate();
}

// Whoever uses an object that is about to move calls the move off.
TEST_F(evacuator_test, a_move_loses_against_a_use) {
  runtime farheap(heap::small_runtime(64 * mib));
  const std::vector<unique_ptr<item>> all = fill(farheap, 20'000);
  std::atomic<bool> stop{false};
  std::thread waits_in_scopes([&] {  // moves wait for their ends
    while (!stop) {
      const scope here(farheap);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::thread evacuates([&] {
    while (!stop) static_cast<void>(farheap.evacuate(0));
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::size_t wrong = 0;
  while (farheap.statistics().lost_races < 100 && std::chrono::steady_clock::now() < deadline) {
    wrong += count_wrong(farheap, all);
  }
  stop = true;
  waits_in_scopes.join();
  evacuates.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GE(farheap.statistics().lost_races, 100u);
  farheap.validate();
}

// A parent that moves takes its children's owners with it: their moves go on all the same.
TEST_F(evacuator_test, parents_and_children_move_in_one_round) {
  runtime farheap(heap::small_runtime(64 * mib));
  constexpr std::uint64_t length = 10'000;
  unique_ptr<node> first;
  for (std::uint64_t i = 0; i < length; ++i) {
    unique_ptr<node> before = make_unique<node>(farheap, i, std::move(first));
    first = std::move(before);
  }
  static_cast<void>(farheap.evacuate(0));
  // All but those of the segment that is still open.
  EXPECT_GE(farheap.statistics().evacuated_objects + heap::segment_bytes / 32, length);
  EXPECT_EQ(farheap.statistics().lost_races, 0u);
  farheap.validate();
  while (first) {
    const scope here(farheap);
    first = std::move(first.deref_mut(here).next);
  }
}

// A reference that an outer scope gave while an inner one was open is the outer one's.
TEST_F(evacuator_test, the_end_of_an_inner_scope_lets_go_of_nothing) {
  runtime farheap(heap::small_runtime(64 * mib));
  std::vector<unique_ptr<item>> all = fill(farheap, 20'000);
  const scope outer(farheap);
  item* held = nullptr;
  {
    const scope inner(farheap);
    held = &all[77].deref_mut(outer);
  }
  std::thread([&] {
    static_cast<void>(farheap.evacuate(0));
    farheap.evict_all();
  }).join();
  held->set(5);
  EXPECT_EQ(&all[77].deref(outer), held);
  EXPECT_TRUE(all[77].deref(outer).is(5));
}

TEST_F(evacuator_test, a_program_may_exit_in_an_open_scope) {
  EXPECT_EXIT(
      {
        auto* const farheap = new runtime(heap::small_runtime());
        auto* const one = new unique_ptr<item>(make_unique<item>(*farheap, 3));
        const scope here(*farheap);
        std::exit(one->deref(here).is(3) ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST_F(evacuator_test, pointers_inside_far_objects_follow) {
  runtime farheap(heap::small_runtime(64 * mib));
  constexpr std::uint64_t length = 20'000;
  unique_ptr<node> first;
  std::vector<unique_ptr<item>> garbage;
  for (std::uint64_t i = 0; i < length; ++i) {
    unique_ptr<node> before = make_unique<node>(farheap, i, std::move(first));
    first = std::move(before);
    garbage.push_back(make_unique<item>(farheap, i));
  }
  garbage.clear();
  for (unsigned round = 0; round < 3; ++round) {
    static_cast<void>(farheap.evacuate(0));
    farheap.validate();
    if (round == 1) farheap.evict_all();
    std::uint64_t expected = length;
    const scope whole(farheap);
    for (const unique_ptr<node>* at = &first; *at;) {
      const node& here = at->deref(whole);
      ASSERT_EQ(here.number, --expected);
      at = &here.next;
    }
    EXPECT_EQ(expected, 0u);
  }
  EXPECT_GT(farheap.statistics().evacuated_objects, length);
  // From the front, one by one: destroying the first would destroy all, each inside the other.
  while (first) {
    unique_ptr<node> next;
    {
      const scope here(farheap);
      next = std::move(first.deref_mut(here).next);
    }
    first = std::move(next);
  }
  farheap.validate();
}

// The rest of a list is a part of what its assignment to the head destroys.
TEST_F(evacuator_test, a_list_is_popped_by_assignment) {
  runtime farheap(heap::small_runtime());
  unique_ptr<node> first;
  for (std::uint64_t i = 0; i < 100; ++i) first = make_unique<node>(farheap, i, std::move(first));
  farheap.evict_all();
  for (std::uint64_t expected = 100; expected-- > 0;) {
    ASSERT_TRUE(first);
    const scope here(farheap);
    ASSERT_EQ(first.deref(here).number, expected);
    first = std::move(first.deref_mut(here).next);
  }
  EXPECT_FALSE(first);
  farheap.validate();
}

// Objects that cannot be copied elsewhere stay, and can be used and destroyed.
TEST_F(evacuator_test, goes_on_without_addresses_for_copies) {
  struct watched {
    std::array<std::uint64_t, 120> content{};
    explicit watched(std::uint64_t value) { content[7] = value; }
  };
  runtime_options chosen = heap::small_runtime();
  chosen.address_bytes = std::size_t{128} << 20;
  chosen.page_path_share = 2;  // objects come back alone
  runtime farheap(chosen);
  std::vector<unique_ptr<watched>> all;
  const auto fill_up = [&] {
    while (true) all.push_back(make_unique<watched>(farheap, all.size()));
  };
  EXPECT_THROW(fill_up(), std::bad_alloc);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % 3 != 0 && i % 50 != 1) all[i].reset();
  }
  static_cast<void>(farheap.evacuate(0.1));
  farheap.validate();
  farheap.evict_all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i]) continue;
    ASSERT_EQ(all[i].read().content[7], i);
  }
  farheap.validate();
  all.clear();
  farheap.validate();
}

TEST_F(evacuator_test, all_aliases_follow) {
  runtime farheap(heap::small_runtime(64 * mib));
  std::vector<shared_ptr<item>> one;
  std::vector<shared_ptr<item>> other;
  for (std::size_t i = 0; i < 50'000; ++i) {
    one.push_back(make_shared<item>(farheap, i));
    if (i % 3 == 0) other.push_back(one.back());
  }
  for (std::size_t i = 0; i < one.size(); ++i) one[i].reset();
  static_cast<void>(farheap.evacuate(0));
  EXPECT_GT(farheap.statistics().evacuated_objects, other.size() * 9 / 10);
  const shared_ptr<std::uint64_t> part(other[100], &item::number);
  for (std::size_t i = 0; i < other.size(); ++i) {
    const scope here(farheap);
    ASSERT_TRUE(other[i].deref(here).is(i * 3));
  }
  other.clear();
  EXPECT_EQ(part.read(), 300u);
  EXPECT_EQ(part.use_count(), 1u);
  farheap.validate();
}

// Owners move while their objects are remote, so the headers name places that are no more.
TEST_F(evacuator_test, owners_that_moved_are_found_again) {
  runtime farheap(heap::small_runtime(16 * mib));
  std::vector<unique_ptr<item>> all = fill(farheap, 400'000);  // 32 MiB
  farheap.evict_all();
  std::vector<unique_ptr<item>> moved;
  moved.reserve(all.size());
  for (unique_ptr<item>& owner : all) moved.push_back(std::move(owner));
  std::vector<unique_ptr<item>>().swap(all);
  EXPECT_EQ(count_wrong(farheap, moved), 0u);
  for (std::size_t i = 0; i < moved.size(); ++i) {
    if (i % 4 != 0) moved[i].reset();
  }
  for (unsigned round = 0; round < 3; ++round) {
    static_cast<void>(farheap.evacuate(0.2));
    EXPECT_EQ(count_wrong(farheap, moved), 0u);
  }
  EXPECT_GT(farheap.statistics().evacuated_objects, 0u);
  farheap.validate();
}

// While the pointers in a copy are followed, other fibers of the thread may use so many heaps that the evacuator's
// segment is closed, and destroy the copy, which is all that is in it.
TEST_F(evacuator_test, a_copy_that_is_destroyed_is_followed_to_its_end) {
  runtime farheap(heap::small_runtime());
  unique_ptr<watched_holder> one = make_unique<watched_holder>(farheap);
  {
    const scope here(farheap);
    one.deref_mut(here).mine = make_unique<item>(farheap, 1);
  }
  for (std::size_t i = 0; i <= heap::segment_pages; ++i) static_cast<void>(make_unique<holder>(farheap));

  std::vector<std::unique_ptr<runtime>> others;
  for (unsigned i = 0; i < 4; ++i) others.push_back(std::make_unique<runtime>(heap::small_runtime()));
  heap::segments& segments = detail::heap_of(farheap).segments;
  const heap::segment* of_copy = nullptr;
  on_visit = [&](watched_holder& /*old_place*/) {
    const scope here(farheap);
    watched_holder& copy = one.deref_mut(here);
    of_copy = &segments.holding(reinterpret_cast<std::uintptr_t>(&copy));
    copy.content[499] = 7;
    for (const std::unique_ptr<runtime>& other : others) static_cast<void>(make_unique<item>(*other, 2));
    ASSERT_EQ(of_copy->state.load(), heap::segment_state::closed);
    one.reset();
    EXPECT_EQ(of_copy->state.load(), heap::segment_state::closed) << "nobody else's";
    EXPECT_EQ(copy.content[499], 7u) << "its bytes are not discarded";
  };
  static_cast<void>(farheap.evacuate(0.5));
  ASSERT_NE(of_copy, nullptr);
  EXPECT_EQ(of_copy->state.load(), heap::segment_state::free);
  farheap.validate();
}

// Each object of a segment has its owner in another page, which must stay where it is while the object moves.
TEST_F(evacuator_test, few_pages_are_held_however_many_have_owners) {
  runtime farheap(heap::small_runtime(64 * mib));
  const tag of_items(farheap, {});
  constexpr std::size_t count = 4'000;
  std::vector<unique_ptr<holder>> holders;
  std::vector<unique_ptr<item>> garbage;
  for (std::size_t i = 0; i < count; ++i) {
    holders.push_back(make_unique<holder>(farheap));
    const scope here(farheap);
    holders.back().deref_mut(here).mine = make_unique<item>(of_items, i);
    garbage.push_back(make_unique<item>(of_items, i));
  }
  garbage.clear();

  // A round waits for the scope, in vain, and holds everything meanwhile.
  std::size_t most_held = 0;
  {
    const scope here(farheap);
    for (unsigned round = 0; round < 20; ++round) {
      std::atomic<bool> is_over{false};
      std::thread evacuates([&] {
        static_cast<void>(farheap.evacuate(0.3));
        is_over = true;
      });
      while (!is_over) {
        for (heap::owner_record* one = heap::first_record(); one != nullptr; one = one->next) {
          most_held = std::max(most_held, one->work.held());
        }
      }
      evacuates.join();
    }
  }
  EXPECT_EQ(farheap.statistics().evacuated_objects, 0u);
  EXPECT_GT(most_held, heap::segment_pages);
  EXPECT_LT(most_held, heap::segment_pages + 512);

  // In part, and in further rounds the rest.
  for (unsigned round = 0; round < 100 && farheap.statistics().evacuated_objects < count / 2; ++round) {
    static_cast<void>(farheap.evacuate(0.3));
  }
  EXPECT_GE(farheap.statistics().evacuated_objects, count / 2);
  for (std::size_t i = 0; i < count; ++i) {
    const scope here(farheap);
    ASSERT_TRUE(holders[i].deref(here).mine.deref(here).is(i));
  }
  farheap.validate();
}

// Pages with one object each are discarded under the hands of the evacuator, which has marked their objects.
TEST_F(evacuator_test, objects_die_while_they_are_moved) {
  struct page_of_bytes {
    std::array<std::uint64_t, 500> content{};
  };
  runtime farheap(heap::small_runtime(64 * mib));
  std::atomic<bool> stop{false};
  std::thread evacuates([&] {
    while (!stop) static_cast<void>(farheap.evacuate(0));
  });
  for (unsigned round = 0; round < 10; ++round) {
    std::vector<unique_ptr<page_of_bytes>> all;
    for (unsigned i = 0; i < 4'000; ++i) all.push_back(make_unique<page_of_bytes>(farheap));
    for (unsigned i = 0; i < 4'000; ++i) ASSERT_EQ(all[i].read().content[499], 0u);
  }
  stop = true;
  evacuates.join();
  EXPECT_GT(farheap.statistics().evacuated_objects, 0u);
  farheap.validate();
}

// Readers and writers go on while everything is evacuated again and again.
TEST_F(evacuator_test, nobody_sees_a_move) {
  runtime farheap(heap::small_runtime(16 * mib));
  constexpr std::size_t count = 300'000;
  std::vector<unique_ptr<item>> all = fill(farheap, count);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> users;
  for (unsigned user = 0; user < 2; ++user) {
    users.emplace_back([&, user] {
      std::mt19937_64 random(user);
      for (unsigned i = 0; i < 200'000; ++i) {
        const std::size_t at = random() % (count / 2) * 2 + user;  // each has its own objects
        const scope here(farheap);
        if (i % 3 == 0) {
          item& mine = all[at].deref_mut(here);
          wrong += !mine.is(mine.number);
          mine.set(mine.number + count);
        } else {
          const item& mine = all[at].deref(here);
          wrong += !mine.is(mine.number) || mine.number % count != at;
        }
        if (i % 16 == 0) {
          const std::uint64_t number = all[at].read().number;
          all[at] = make_unique<item>(farheap, number);
        }
      }
    });
  }
  std::thread evacuates([&] {
    while (!stop) static_cast<void>(farheap.evacuate(0));
  });
  for (std::thread& thread : users) thread.join();
  stop = true;
  evacuates.join();
  EXPECT_EQ(wrong, 0u);
  for (std::size_t i = 0; i < count; ++i) {
    const item now = all[i].read();
    ASSERT_TRUE(now.is(now.number) && now.number % count == i) << i;
  }
  EXPECT_GT(farheap.statistics().evacuated_objects, 100'000u);
  farheap.validate();
}

}  // namespace
}  // namespace far
