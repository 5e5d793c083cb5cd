// far::shared_ptr and far::weak_ptr. Needs permission for userfaultfd.
#include "far/shared_ptr.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/runtime.h"
#include "tests/support/real_pager.h"

namespace far {
namespace shared {

std::atomic<int> living{0};

struct counted {
  std::uint64_t first = 1;
  std::uint64_t second = 2;
  counted() { ++living; }
  counted(const counted&) = delete;
  ~counted() { --living; }
};
struct other_base {
  std::uint64_t zero = 0;
};
struct both : other_base, counted {};

}  // namespace shared

template <>
inline constexpr bool is_relocatable<shared::counted> = true;
template <>
inline constexpr bool is_relocatable<shared::both> = true;

namespace {

using namespace shared;
using shared_ptr_test = heap::real_pager_test<>;

static_assert(sizeof(shared_ptr<int[]>) == 16 && sizeof(weak_ptr<int>) == 16);
static_assert(!std::is_constructible_v<shared_ptr<both>, shared_ptr<counted>>, "not downwards");

TEST_F(shared_ptr_test, takes_over_what_a_unique_ptr_owns) {
  runtime farheap(heap::small_runtime());
  unique_ptr<counted> sole = make_unique<counted>(farheap);
  farheap.evict_all();
  shared_ptr<counted> first(std::move(sole));
  EXPECT_TRUE(sole == nullptr);
  const shared_ptr<counted> second = first;
  EXPECT_EQ(first.use_count(), 2u);
  {
    const scope here(farheap);
    EXPECT_EQ(second.deref(here).second, 2u);
  }
  first.reset();
  EXPECT_EQ(living.load(), 1);
  EXPECT_TRUE(shared_ptr<counted>(unique_ptr<counted>()) == nullptr);
  farheap.validate();
}

TEST_F(shared_ptr_test, get_finds_the_object_or_null) {
  runtime farheap(heap::small_runtime());
  const shared_ptr<counted> one = make_shared<counted>(farheap);
  const shared_ptr<std::uint64_t> part(one, &counted::second);
  const shared_ptr<counted> none;
  farheap.evict_all();
  const scope here(farheap);
  EXPECT_EQ(one.get(here), &one.deref(here));
  one.get_mut(here)->second = 5;
  EXPECT_EQ(*part.get(here), 5u);
  EXPECT_TRUE(none.get(here) == nullptr && none.get_mut(here) == nullptr);
}

TEST_F(shared_ptr_test, names_members_bases_and_elements) {
  runtime farheap(heap::small_runtime());
  {
    shared_ptr<both> whole = make_shared<both>(farheap);
    const shared_ptr<counted> base = whole;
    const shared_ptr<std::uint64_t> member(base, &counted::second);
    const shared_ptr<counted> moved = std::move(whole);
    EXPECT_TRUE(whole == nullptr && base == moved && base.use_count() == 3);
    static_cast<void>(farheap.evacuate());
    farheap.evict_all();
    EXPECT_EQ(member.read(), 2u);
    member.write(7);
    const scope here(farheap);
    EXPECT_EQ(moved.deref(here).second, 7u);
  }
  EXPECT_EQ(living.load(), 0);
}

TEST_F(shared_ptr_test, a_null_pointer_stays_null_as_a_pointer_to_a_base) {
  const shared_ptr<both> whole;
  const shared_ptr<counted> part = whole;
  EXPECT_EQ(part, nullptr);
  EXPECT_EQ(part, shared_ptr<counted>());
  EXPECT_EQ(std::hash<shared_ptr<counted>>()(part), std::hash<shared_ptr<counted>>()(shared_ptr<counted>()));
}

TEST_F(shared_ptr_test, owns_arrays) {
  runtime farheap(heap::small_runtime());
  for (const std::size_t count : {4u, 30'000u}) {
    shared_ptr<int[]> all = make_shared<int[]>(farheap, count);
    EXPECT_EQ(all.size(), count);
    const shared_ptr<int> last(all, count - 1);
    last.write(9);
    farheap.evict_all();
    const std::uint64_t before = farheap.statistics().page_fetches;
    EXPECT_EQ(all.read(count - 1), 9);
    EXPECT_LE(farheap.statistics().page_fetches, before + 1) << "the page of the element alone";
    all.reset();
    EXPECT_EQ(last.read(), 9);
  }
  const shared_ptr<counted[]> objects(make_unique<counted[]>(farheap, 3));
  EXPECT_EQ(living.load(), 3);
  const scope here(farheap);
  EXPECT_EQ(objects.deref(here)[2].second, 2u);
  const shared_ptr<int[]> none;
  EXPECT_EQ(none.size(), 0u);
  EXPECT_TRUE(none.deref(here).empty());
}

// Its address is that of the whole.
TEST_F(shared_ptr_test, the_first_element_brings_in_its_page_alone) {
  runtime farheap(heap::small_runtime());
  const shared_ptr<int[]> all = make_shared<int[]>(farheap, 30'000);
  {
    const scope here(farheap);
    std::ranges::fill(all.deref_mut(here), 9);
  }
  const shared_ptr<int> first(all, 0);
  farheap.evict_all();
  const std::uint64_t before = farheap.statistics().fetched_pages;
  EXPECT_EQ(first.read(), 9);
  EXPECT_EQ(farheap.statistics().fetched_pages, before + 1);
}

TEST_F(shared_ptr_test, compares_hashes_and_swaps) {
  runtime farheap(heap::small_runtime());
  shared_ptr<int[]> all = make_shared<int[]>(farheap, 3);
  shared_ptr<int> first(all, 0);
  shared_ptr<int> second(all, 1);
  const shared_ptr<int> again(all, 1);
  shared_ptr<int> other = make_shared<int>(farheap, 5);
  EXPECT_TRUE(second == again && first != second && first < second && first != nullptr);
  EXPECT_FALSE(first.owner_before(second) || second.owner_before(first));
  EXPECT_TRUE(first.owner_before(other) != other.owner_before(first));
  EXPECT_EQ(std::hash<shared_ptr<int>>()(second), std::hash<shared_ptr<int>>()(again));
  const std::unordered_set<shared_ptr<int>> hashed{first, second, again, other};
  const std::set<shared_ptr<int>> sorted{first, second, again, other};
  static_cast<void>(farheap.evacuate());
  farheap.evict_all();
  EXPECT_EQ(hashed.size(), 3u);
  EXPECT_EQ(sorted.size(), 3u);
  EXPECT_TRUE(hashed.contains(other) && sorted.contains(again));
  swap(first, other);
  EXPECT_EQ(first.read(), 5);
}

TEST_F(shared_ptr_test, a_weak_ptr_sees_whether_the_object_lives) {
  runtime farheap(heap::small_runtime());
  shared_ptr<counted> owner = make_shared<counted>(farheap);
  const weak_ptr<counted> watching = owner;
  weak_ptr<counted> copy = watching;
  EXPECT_EQ(watching.use_count(), 1u);
  EXPECT_FALSE(watching.owner_before(owner) || owner.owner_before(watching));
  {
    const shared_ptr<counted> locked = watching.lock();
    EXPECT_TRUE(locked == owner);
    owner.reset();
    EXPECT_FALSE(watching.expired()) << "the locked one owns it";
  }
  EXPECT_EQ(living.load(), 0);
  EXPECT_TRUE(watching.expired());
  EXPECT_TRUE(watching.lock() == nullptr);
  copy = weak_ptr<counted>();
  EXPECT_TRUE(copy.expired() && copy.lock() == nullptr);
}

TEST_F(shared_ptr_test, a_weak_ptr_names_a_base) {
  runtime farheap(heap::small_runtime());
  shared_ptr<both> whole = make_shared<both>(farheap);
  weak_ptr<both> watching = whole;
  const weak_ptr<counted> base = watching;  // behind the other base
  const weak_ptr<counted> of_owner = whole;
  const shared_ptr<counted> locked = base.lock();
  EXPECT_TRUE(locked == shared_ptr<counted>(whole) && of_owner.lock() == locked);
  {
    const scope here(farheap);
    EXPECT_EQ(locked.deref(here).second, 2u);
  }
  const weak_ptr<counted> moved = std::move(watching);
  EXPECT_TRUE(moved.lock() == locked && watching.expired() && watching.lock() == nullptr);
  const weak_ptr<counted> of_none = weak_ptr<both>();
  EXPECT_TRUE(of_none.expired() && of_none.lock() == nullptr);
  static_assert(!std::is_constructible_v<weak_ptr<both>, weak_ptr<counted>>, "not downwards");
}

TEST_F(shared_ptr_test, a_weak_ptr_is_locked_or_too_late) {
  runtime farheap(heap::small_runtime());
  for (int round = 0; round < 200; ++round) {
    shared_ptr<counted> owner = make_shared<counted>(farheap);
    const weak_ptr<counted> watching = owner;
    std::thread user([&] {
      while (const shared_ptr<counted> locked = watching.lock()) {
        const scope here(farheap);
        EXPECT_EQ(locked.deref(here).second, 2u);
      }
    });
    owner.reset();
    user.join();
    EXPECT_EQ(living.load(), 0);
  }
}

// Far pointers in far objects, in a ring that a weak pointer opens.
struct link {
  shared_ptr<link> next;
  weak_ptr<link> previous;
  std::uint64_t number = 0;
};

}  // namespace

template <>
struct pointers_of<link> {
  static void visit(link& in, auto&& pointer) {
    pointer(in.next);
    pointer(in.previous);
  }
};

namespace {

TEST_F(shared_ptr_test, weak_pointers_in_far_objects_open_rings) {
  runtime farheap(heap::small_runtime());
  const shared_ptr<link> first = make_shared<link>(farheap);
  weak_ptr<link> second;
  {
    const shared_ptr<link> third = make_shared<link>(farheap);
    second = third;
    const scope here(farheap);
    first.deref_mut(here).next = third;
    link& other = third.deref_mut(here);
    other.previous = first;
    other.number = 3;
  }
  static_cast<void>(farheap.evacuate());
  farheap.evict_all();
  {
    const scope here(farheap);
    const link& other = first.deref(here).next.deref(here);
    EXPECT_EQ(other.number, 3u);
    EXPECT_TRUE(other.previous.lock() == first);
    first.deref_mut(here).next.reset();
  }
  EXPECT_TRUE(second.expired());
  farheap.validate();
}

}  // namespace
}  // namespace far
