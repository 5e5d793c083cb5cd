// Types of objects with far pointers: by number, and by name in the object when no number is left. Needs permission for
// userfaultfd.
#include "heap/object_types.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "far/scope.h"
#include "far/unique_ptr.h"
#include "heap/header.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

// 40 bytes: with a header of 8, and nothing else, three units.
template <int Which>
struct node {
  std::array<std::uint64_t, 4> content{};
  unique_ptr<std::uint64_t> mine;
};

}  // namespace

template <int Which>
struct pointers_of<node<Which>> {
  static void visit(node<Which>& in, auto&& pointer) { pointer(in.mine); }
};

namespace {

using numbered_node = node<1>;
using late_node = node<2>;

void take_all_numbers() {
  static const std::array<detail::type_of_object, 1u << heap::kind_bits> others{};
  for (const detail::type_of_object& one : others) static_cast<void>(heap::kind_of(&one, 16));
}

void check_numbers() {
  static const detail::type_of_object type{};
  static const detail::type_of_object other{};
  for (std::size_t alignment = 16; alignment <= heap::most_small_alignment; alignment *= 2) {
    const heap::object_kind kind = heap::kind_of(nullptr, alignment);
    EXPECT_FALSE(heap::has_pointers(kind));
    EXPECT_EQ(heap::alignment_of(kind), alignment);
    EXPECT_EQ(heap::bytes_with_type(41, kind), 41u);
  }
  const heap::object_kind kind = heap::kind_of(&type, 64);
  EXPECT_TRUE(heap::has_pointers(kind));
  EXPECT_EQ(heap::alignment_of(kind), 64u);
  EXPECT_EQ(&heap::type_of(kind, nullptr), &type);
  EXPECT_EQ(heap::kind_of(&type, 64), kind) << "once and for all";
  EXPECT_GT(heap::bytes_of_type(heap::kind_of(&type, 32)), 0u) << "with its alignment";
  EXPECT_NE(heap::kind_of(&other, 64), kind);
  EXPECT_EQ(heap::bytes_with_type(40, kind), 40u);
}

// The library may be in the process more than once, with a table each; then the number may be of another's table.
void check_numbers_of_others() {
  static const detail::type_of_object here{};
  const heap::object_kind number = heap::kind_of(&here, 64);
  for (const unsigned other : {unsigned{number}, (1u << heap::kind_bits) - 1, 255u}) {
    const detail::type_of_object type{nullptr, nullptr, static_cast<std::uint8_t>(other)};
    const heap::object_kind kind = heap::kind_of(&type, 64);
    EXPECT_TRUE(heap::has_pointers(kind));
    EXPECT_EQ(heap::alignment_of(kind), 64u);
    ASSERT_GT(heap::bytes_of_type(kind), 0u) << other << " is not this type's";
    const detail::type_of_object* const end = &type;
    EXPECT_EQ(&heap::type_of(kind, reinterpret_cast<const std::byte*>(&end + 1)), &type);
  }
  EXPECT_EQ(heap::kind_of(&here, 64), number);
}

// A type without a number names itself in the object.
void check_names() {
  static const detail::type_of_object late{};
  for (const std::size_t alignment : {16u, 2048u}) {
    const heap::object_kind kind = heap::kind_of(&late, alignment);
    EXPECT_TRUE(heap::has_pointers(kind));
    EXPECT_EQ(heap::alignment_of(kind), alignment);
    EXPECT_EQ(heap::bytes_with_type(41, kind), 56u);
    std::array<const detail::type_of_object*, 2> end{nullptr, &late};
    EXPECT_EQ(&heap::type_of(kind, reinterpret_cast<const std::byte*>(end.data() + 2)), &late);
  }
}

template <typename Node>
void use_many(runtime& farheap, std::size_t bytes_each) {
  constexpr std::size_t count = 5'000;
  std::vector<unique_ptr<Node>> all;
  std::uintptr_t before = 0;
  std::size_t neighbours = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    all.push_back(make_unique<Node>(farheap));
    const scope here(farheap);
    const auto at = reinterpret_cast<std::uintptr_t>(&all.back().deref_mut(here));
    neighbours += at - before == bytes_each;
    before = at;
  }
  EXPECT_GT(neighbours, count / 2) << bytes_each;
  for (std::uint64_t i = 0; i < count; ++i) {
    const scope here(farheap);
    all[i].deref_mut(here).mine = make_unique<std::uint64_t>(farheap, i);
    if (i % 3 == 2) all[i - 1].reset();
  }
  // They move with their pages, alone, and to others that are in use.
  for (const bool evacuates : {false, true}) {
    if (evacuates) {
      static_cast<void>(farheap.evacuate(0));
    } else {
      farheap.evict_all();
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!all[i]) continue;
      const scope here(farheap);
      ASSERT_EQ(all[i].deref(here).mine.deref(here), i);
    }
    farheap.validate();
  }
}

using types_test = heap::real_pager_test<>;

// One test, because the numbers of a process are taken for good.
TEST_F(types_test, have_numbers_until_none_is_left) {
  check_numbers();
  check_numbers_of_others();
  runtime_options chosen = heap::small_runtime();
  chosen.page_path_share = 2;  // objects come back alone
  runtime farheap(chosen);
  use_many<numbered_node>(farheap, 48);
  take_all_numbers();
  check_names();
  use_many<numbered_node>(farheap, 48);
  use_many<late_node>(farheap, 64);
  EXPECT_GT(farheap.statistics().object_fetches, 0u);
  EXPECT_GT(farheap.statistics().evacuated_objects, 0u);

  unique_ptr<late_node[]> many = make_unique<late_node[]>(farheap, 7);
  EXPECT_EQ(many.size(), 7u) << "without what names the type";
}

}  // namespace
}  // namespace far
