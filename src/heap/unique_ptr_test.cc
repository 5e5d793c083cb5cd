// Objects that far::unique_ptr owns, beside single ones (pointer_test.cc): arrays, derived classes, objects with
// members in local memory. Needs permission for userfaultfd.
#include "far/unique_ptr.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/runtime.h"
#include "tests/support/eventually.h"
#include "tests/support/real_pager.h"

namespace far {
namespace owned {

struct person {
  std::vector<char> name;
  std::unique_ptr<int> age;
};

int living = 0;

struct counted {
  int number = 0;
  counted() { ++living; }
  explicit counted(int value) : number(value) { ++living; }
  counted(const counted&) = delete;
  ~counted() { --living; }
};

struct fragile : counted {
  fragile() {
    if (living == 50) throw std::runtime_error("the fiftieth");
  }
};

struct shape {
  int corners = 0;
  shape() = default;
  explicit shape(int count) : corners(count) {}
  shape(const shape&) = delete;
  virtual ~shape() = default;
  [[nodiscard]] virtual int area() const = 0;
};
struct square : shape {
  counted counter;
  int side = 0;
  explicit square(int length) : shape(4), side(length) {}
  [[nodiscard]] int area() const override { return side * side; }
};

struct point {
  int x = 0;
};
struct point_in_space : point {
  int z = 0;
};
struct asks_its_owner {
  static inline bool (*finds_null)() = nullptr;
  static inline bool was_null = false;
  static inline int asked = 0;
  std::uint64_t content = 1;
  ~asks_its_owner() {
    ++asked;
    was_null = finds_null();
  }
};
struct named {
  int name = 0;
};
struct named_point : named, point {};
struct watched_point : point {
  ~watched_point() {}
};
struct virtual_point : virtual point {};

}  // namespace owned

template <>
inline constexpr bool is_relocatable<owned::person> = relocatable_members<&owned::person::name, &owned::person::age>;
template <>
inline constexpr bool is_relocatable<owned::counted> = true;
template <>
inline constexpr bool is_relocatable<owned::asks_its_owner> = true;
template <>
inline constexpr bool is_relocatable<owned::fragile> = true;
template <>
inline constexpr bool is_relocatable<owned::square> = true;

namespace {

using namespace owned;
using ownership_test = heap::real_pager_test<>;

// Elsewhere, and out.
void stir(runtime& farheap) {
  static_cast<void>(farheap.evacuate());
  farheap.evict_all();
}

static_assert(std::is_constructible_v<unique_ptr<point>, unique_ptr<point_in_space>>);
static_assert(std::is_constructible_v<unique_ptr<shape>, unique_ptr<square>>);
static_assert(!std::is_constructible_v<unique_ptr<point_in_space>, unique_ptr<point>>, "not downwards");
static_assert(!std::is_constructible_v<unique_ptr<point>, unique_ptr<named_point>>, "it begins later");
static_assert(std::is_constructible_v<unique_ptr<named>, unique_ptr<named_point>>);
static_assert(!std::is_constructible_v<unique_ptr<point>, unique_ptr<watched_point>>, "it could not be destroyed");
static_assert(!std::is_constructible_v<unique_ptr<point>, unique_ptr<virtual_point>>);
static_assert(!std::is_constructible_v<unique_ptr<point[]>, unique_ptr<point_in_space[]>>);
static_assert(!std::is_default_constructible_v<std::hash<unique_ptr<int>>>, "its address changes");
static_assert(sizeof(unique_ptr<unique_ptr<int>[]>) == 8);

static_assert(relocatable<person> && relocatable<std::vector<int>> && relocatable<std::pair<int, std::vector<int>>>);
static_assert(relocatable<std::pair<unique_ptr<int>, std::vector<int>>> && relocatable<std::array<unique_ptr<int>, 3>>);
static_assert(relocatable<std::optional<unique_ptr<int>>> && relocatable<std::optional<std::unique_ptr<int>>>);
static_assert(!relocatable<std::tuple<int, unique_ptr<int>>>, "nobody says where the far pointer is");
static_assert(!relocatable<std::pair<unique_ptr<int>, std::list<int>>> && !relocatable<std::list<int>>);
static_assert(!relocatable<std::string> && !relocatable<std::optional<std::string>>);

TEST_F(ownership_test, swaps_and_compares) {
  runtime farheap(heap::small_runtime());
  unique_ptr<int> one = make_unique<int>(farheap, 1);
  unique_ptr<int> two = make_unique<int>(farheap, 2);
  unique_ptr<int> none;
  EXPECT_TRUE(one == one && one != two && one != nullptr && none == nullptr && none != one);
  EXPECT_TRUE(none == unique_ptr<int>());
  farheap.evict_all();
  swap(one, two);
  EXPECT_EQ(one.read(), 2);
  EXPECT_EQ(two.read(), 1);
  std::swap(one, none);
  EXPECT_TRUE(one == nullptr);
  EXPECT_EQ(none.read(), 2);
  none.swap(none);
  EXPECT_EQ(none.read(), 2);
  farheap.validate();
}

TEST_F(ownership_test, get_finds_the_object_or_null) {
  runtime farheap(heap::small_runtime());
  unique_ptr<int> one = make_unique<int>(farheap, 1);
  unique_ptr<int> two = make_unique<int>(farheap, 2);
  for (const double share : {0.0, 2.0}) {
    farheap.set_page_path_share(share);
    stir(farheap);
    const scope here(farheap);
    ASSERT_TRUE(one.get(here) != nullptr);
    EXPECT_EQ(one.get(here), &one.deref(here));
    *two.get_mut(here) += 10;
  }
  const scope here(farheap);
  EXPECT_EQ(*two.get(here), 22);
  // The pointers change in the scope.
  swap(one, two);
  EXPECT_EQ(*one.get(here), 22);
  EXPECT_EQ(*two.get(here), 1);
  unique_ptr<int> taken = std::move(one);
  EXPECT_TRUE(one.get(here) == nullptr && one.get_mut(here) == nullptr);
  EXPECT_EQ(*taken.get(here), 22);
  taken.reset();
  EXPECT_TRUE(taken.get(here) == nullptr);
  farheap.validate();
}

TEST_F(ownership_test, a_derived_class_is_destroyed_through_its_base) {
  runtime farheap(heap::small_runtime());
  {
    unique_ptr<square> exact = make_unique<square>(farheap, 3);
    unique_ptr<shape> general = std::move(exact);
    EXPECT_TRUE(exact == nullptr);
    stir(farheap);
    const scope here(farheap);
    EXPECT_EQ(general.deref(here).area(), 9);
    EXPECT_EQ(living, 1);
    unique_ptr<shape> other;
    other = make_unique<square>(farheap, 4);
    EXPECT_EQ(living, 2);
  }
  EXPECT_EQ(living, 0);
  unique_ptr<point_in_space> placed = make_unique<point_in_space>(farheap, point_in_space{{5}, 6});
  const unique_ptr<point> plain(std::move(placed));
  EXPECT_EQ(plain.read().x, 5);
}

TEST_F(ownership_test, objects_with_members_in_local_memory_move) {
  runtime farheap(heap::small_runtime());
  std::vector<unique_ptr<person>> all;
  for (int i = 0; i < 2000; ++i) {
    const std::vector<char> name(static_cast<std::size_t>(i % 50), static_cast<char>(i));
    all.push_back(make_unique<person>(farheap, person{name, std::make_unique<int>(i)}));
  }
  for (std::size_t i = 0; i < all.size(); i += 2) all[i].reset();
  farheap.set_page_path_share(2);
  for (int round = 0; round < 2; ++round) {
    stir(farheap);
    for (std::size_t i = 1; i < all.size(); i += 2) {
      const scope here(farheap);
      const person& found = all[i].deref(here);
      ASSERT_EQ(*found.age, static_cast<int>(i));
      ASSERT_EQ(found.name, std::vector<char>(i % 50, static_cast<char>(i)));
    }
  }
  EXPECT_GT(farheap.statistics().object_fetches + farheap.statistics().evacuated_objects, 500u);
  farheap.validate();
}

// In a page, in pages that a scope holds, and in more.
TEST_F(ownership_test, arrays_of_far_pointers_follow_their_objects) {
  runtime farheap(heap::small_runtime());
  for (const std::size_t count : {3u, 100u, 509u, 5000u, 15'000u, 200'000u}) {
    auto all = make_unique<unique_ptr<std::uint64_t>[]>(farheap, count);
    ASSERT_EQ(all.size(), count);
    auto garbage = make_unique<unique_ptr<std::uint64_t>[]>(farheap, count);
    for (std::size_t i = 0; i < count; ++i) {
      const scope here(farheap);
      ASSERT_TRUE(all.deref(here, i) == nullptr);
      garbage.deref_mut(here, i) = make_unique<std::uint64_t>(farheap, i);
      all.deref_mut(here, i) = make_unique<std::uint64_t>(farheap, i * 7);
    }
    garbage.reset();
    for (const double share : {2.0, 0.0}) {
      farheap.set_page_path_share(share);
      stir(farheap);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const scope here(farheap);
        wrong += all.deref(here, i).deref(here) == i * 7 ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0u) << count << " pointers";
      farheap.validate();
    }
    unique_ptr<unique_ptr<std::uint64_t>[]> moved = std::move(all);
    stir(farheap);
    EXPECT_EQ(moved.size(), count);
  }
  EXPECT_GT(farheap.statistics().evacuated_objects, 0u);
}

// An object moves only if its header names its owner: so all do again and again only if each move of an array is
// followed.
TEST_F(ownership_test, all_pointers_in_an_array_are_followed) {
  runtime farheap(heap::small_runtime());
  std::vector<unique_ptr<unique_ptr<std::uint64_t>[]>> all;
  for (std::uint64_t i = 0; i < 100; ++i) {
    all.push_back(make_unique<unique_ptr<std::uint64_t>[]>(farheap, 400));
    const scope here(farheap);
    for (unique_ptr<std::uint64_t>& one : all.back().deref_mut(here)) one = make_unique<std::uint64_t>(farheap, i);
  }
  static_cast<void>(farheap.evacuate());  // an array that moves calls off moves of what it points to
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t before = farheap.statistics().evacuated_objects;
    static_cast<void>(farheap.evacuate());
    EXPECT_GT(farheap.statistics().evacuated_objects, before + 20'000);
  }
  farheap.validate();
}

TEST_F(ownership_test, elements_are_destroyed_with_their_array) {
  runtime farheap(heap::small_runtime());
  for (const std::size_t count : {1u, 7u, 30'000u}) {
    auto all = make_unique<counted[]>(farheap, count);
    EXPECT_EQ(living, static_cast<int>(count));
    stir(farheap);
    all.reset();
    EXPECT_EQ(living, 0);
  }
  EXPECT_THROW(static_cast<void>(make_unique<fragile[]>(farheap, 100)), std::runtime_error);
  EXPECT_EQ(living, 0);
  farheap.validate();
}

TEST_F(ownership_test, an_element_brings_in_its_page_alone) {
  runtime farheap(heap::small_runtime());
  constexpr std::size_t count = 1 << 15;  // 32 pages
  auto all = make_unique<std::uint32_t[]>(farheap, count);
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 11u);
  all.write(0, numbers);
  farheap.evict_all();
  const std::uint64_t before = farheap.statistics().page_fetches;
  EXPECT_EQ(all.read(count / 2), count / 2 + 11);
  EXPECT_EQ(farheap.statistics().page_fetches, before + 1);
  all.write(count / 2 + 1, 5u);
  EXPECT_EQ(farheap.statistics().page_fetches, before + 1);
  // A page has 1024 of them.
  std::vector<std::uint32_t> some(2048);
  all.read(5 * 1024 + 512, some);
  EXPECT_EQ(some.front(), 5u * 1024 + 512 + 11);
  EXPECT_EQ(some.back(), 5u * 1024 + 512 + 2047 + 11);
  EXPECT_LE(farheap.statistics().page_fetches, before + 4);
  all.read(0, numbers);
  EXPECT_EQ(numbers[count / 2 + 1], 5u);
  EXPECT_EQ(numbers[count - 1], count + 10);
  farheap.validate();
}

TEST_F(ownership_test, an_array_whose_first_page_is_here_is_prefetched_as_well) {
  runtime farheap(heap::small_runtime());
  constexpr std::size_t pages = 200;
  auto all = make_unique<std::uint64_t[]>(farheap, pages * page_bytes / sizeof(std::uint64_t));
  for (std::size_t i = 0; i < all.size(); i += page_bytes / sizeof(std::uint64_t)) all.write(i, i + 1);
  farheap.evict_all();
  EXPECT_EQ(all.read(0), 1u);
  const std::uint64_t fetched = farheap.statistics().fetched_pages;
  EXPECT_TRUE(all.prefetch());
  EXPECT_TRUE(eventually([&] { return farheap.statistics().fetched_pages >= fetched + pages / 2; }));
}

TEST_F(ownership_test, a_range_of_elements_ends_with_its_array) {
  runtime farheap(heap::small_runtime());
  std::vector<int> some(8, 5);
  for (const std::size_t count : {10u, 5000u}) {
    auto all = make_unique<int[]>(farheap, count);
    all.write(count - 8, some);
    EXPECT_THROW(all.read(count - 7, some), std::out_of_range) << count;
    EXPECT_THROW(all.write(count - 7, some), std::out_of_range) << count;
    EXPECT_THROW(all.read(SIZE_MAX, some, non_temporal), std::out_of_range) << count;
    EXPECT_THROW(all.write(SIZE_MAX, some, non_temporal), std::out_of_range) << count;
    EXPECT_EQ(all.read(count - 1), 5);
    all.read(count, std::span<int>());
  }
  unique_ptr<int[]> none;
  none.write(0, std::span<const int>());
  EXPECT_THROW(none.read(0, some), std::out_of_range);
  farheap.validate();
}

// Null pointers to members are not zeros.
TEST_F(ownership_test, elements_of_large_arrays_have_their_first_value) {
  runtime farheap(heap::small_runtime());
  constexpr std::size_t count = 10'000;
  const auto members = make_unique<int point::*[]>(farheap, count);
  const auto numbers = make_unique<double[]>(farheap, count);
  for (std::size_t i = 0; i < count; i += 99) {
    EXPECT_EQ(members.read(i), nullptr);
    EXPECT_EQ(numbers.read(i), 0);
  }
}

TEST_F(ownership_test, an_object_finds_its_owner_null_when_it_is_reset) {
  runtime farheap(heap::small_runtime());
  static unique_ptr<asks_its_owner>* owner = nullptr;
  auto first = make_unique<asks_its_owner>(farheap);
  owner = &first;
  asks_its_owner::finds_null = [] { return !*owner; };
  first.reset();
  EXPECT_EQ(asks_its_owner::asked, 1);
  EXPECT_TRUE(asks_its_owner::was_null);
}

TEST_F(ownership_test, an_array_without_elements_is_null) {
  runtime farheap(heap::small_runtime());
  const auto none = make_unique<char[]>(farheap, 0);
  const scope here(farheap);
  EXPECT_TRUE(none == nullptr);
  EXPECT_EQ(none.size(), 0u);
  EXPECT_TRUE(none.deref(here).empty());
}

using ownership_death_test = ownership_test;

TEST_F(ownership_death_test, a_null_pointer_that_is_dereferenced_stops_the_program) {
  EXPECT_DEATH(
      {
        runtime farheap(heap::small_runtime());
        const scope here(farheap);
        const unique_ptr<int> none;
        static_cast<void>(none.deref(here));
      },
      "the program uses far memory wrongly: .* points to an object");
}

TEST_F(ownership_death_test, a_pointer_that_outlives_its_runtime_stops_the_program) {
  EXPECT_DEATH(
      {
        unique_ptr<int> left;
        runtime farheap(heap::small_runtime());
        left = make_unique<int>(farheap, 1);
        farheap.~runtime();
        left.reset();
      },
      "the program uses far memory wrongly: far pointers are gone before their far::runtime");
}

TEST_F(ownership_death_test, an_element_outside_of_a_large_array_stops_the_program) {
  EXPECT_DEATH(
      {
        runtime farheap(heap::small_runtime());
        const auto all = make_unique<int[]>(farheap, 5000);
        static_cast<void>(all.read(5000));
      },
      "the program uses far memory wrongly: .* lies in it");
  // Its offset in bytes would be that of the first.
  EXPECT_DEATH(
      {
        runtime farheap(heap::small_runtime());
        const auto all = make_unique<double[]>(farheap, 5000);
        static_cast<void>(all.read(std::size_t{1} << 61));
      },
      "lies in it");
}

}  // namespace
}  // namespace far
