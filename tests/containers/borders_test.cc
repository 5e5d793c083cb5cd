// Containers of elements of unusual sizes, and of none. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/array.h"
#include "far/hash_map.h"
#include "far/list.h"
#include "far/queue.h"
#include "far/stack.h"
#include "far/string.h"
#include "far/vector.h"
#include "tests/containers/elements.h"

namespace far {
namespace {

// So many bytes, each of which depends on the number and on its place.
template <std::size_t Bytes, std::size_t Alignment = 1>
struct alignas(Alignment) sized {
  std::array<unsigned char, Bytes> bytes = {};

  sized() = default;
  sized(std::uint64_t number) {
    for (std::size_t i = 0; i < Bytes; ++i) bytes[i] = static_cast<unsigned char>(number * 31 + i * 7 + i / 256);
  }
  friend bool operator==(const sized&, const sized&) = default;
};

// The same with a far pointer in it.
template <std::size_t Bytes>
struct sized_linked {
  unique_ptr<std::uint64_t> target;
  sized<Bytes - sizeof target> rest;

  sized_linked() = default;
  sized_linked(std::uint64_t number) : target(make_unique<std::uint64_t>(*test::home, number)), rest(number) {}
  friend bool operator==(const sized_linked& a, const sized_linked& b) {
    return a.rest == b.rest && (a.target ? a.target.read() : 0) == (b.target ? b.target.read() : 0);
  }
};

}  // namespace

template <std::size_t Bytes>
struct pointers_of<sized_linked<Bytes>> {
  static void visit(sized_linked<Bytes>& in, auto&& pointer) { pointer(in.target); }
};

namespace {

template <typename T>
class borders : public test::containers_test {
 protected:
  // About so many bytes.
  static constexpr std::size_t count = std::clamp<std::size_t>(3 * mib / sizeof(T), 12, 3'000);
};
using element_types = testing::Types<sized<3>, sized<48, 16>, sized<2040, 8>, sized<4080, 16>, sized<4096, 16>,
                                     sized<200'000, 16>, sized_linked<2040>, sized_linked<4072>, sized_linked<70'000>>;
TYPED_TEST_SUITE(borders, element_types);

template <typename T>
[[nodiscard]] bool is(const T& found, std::uint64_t number) {
  return reinterpret_cast<std::uintptr_t>(&found) % alignof(T) == 0 && found == *std::make_unique<T>(number);
}

template <typename T, std::size_t Elements>
void check_vector(runtime& farheap, std::size_t count) {
  vector<T, Elements> all(farheap);
  for (std::uint64_t i = 0; i < count; ++i) all.emplace_back(i);
  farheap.evict_all();
  farheap.evacuate(0);
  {
    const scope here(farheap);
    std::uint64_t at = 0;
    for (const T& one : all.range(here)) ASSERT_TRUE(is(one, at++)) << at;
    ASSERT_EQ(at, count);
  }
  farheap.evict_all();
  {
    const scope here(farheap);
    std::uint64_t at = count;
    for (const T& one : all.range(here) | std::views::reverse) ASSERT_TRUE(is(one, --at)) << at;
    for (const std::span<const T> part : all.chunks(here)) {
      for (const T& one : part) ASSERT_TRUE(is(one, at++)) << at;
    }
  }
  all.erase(count / 3, 2);
  all.emplace(count / 3, count / 3 + 1);
  all.emplace(count / 3, count / 3);
  {
    const scope here(farheap);
    for (std::uint64_t i = 0; i < count; i += 3) ASSERT_TRUE(is(all.at(here, i), i)) << i;
    EXPECT_TRUE(all.chunk(here, count / 2, 0).empty());
    EXPECT_TRUE(is(all.chunk(here, count / 2, 1).front(), count / 2));
  }
  all.prefetch(count, 0);
  all.prefetch(count - 1, 1);
  EXPECT_THROW(all.prefetch(count, 1), std::out_of_range);
  EXPECT_THROW(all.prefetch(0, count + 1), std::out_of_range);
  EXPECT_THROW(all.prefetch(1, SIZE_MAX), std::out_of_range);
  all.prefetch_by([](std::size_t index, const auto& fetch) {
    fetch(index, SIZE_MAX);
    fetch(SIZE_MAX, 2);
    fetch(index, 0);
  });
  farheap.evict_all();
  for (std::size_t i = 0; i < count; i += 5) {
    const scope here(farheap);
    ASSERT_TRUE(is(all.at(here, i), i)) << i;
  }
  while (all.size() > 1) all.pop_back();
  all.shrink_to_fit();
  all.resize(5);
  const scope here(farheap);
  EXPECT_TRUE(all.at(here, 1) == *std::make_unique<T>()) << "room that was used before is not handed out as it was";
}

TYPED_TEST(borders, vectors) {
  ASSERT_NO_FATAL_FAILURE((check_vector<TypeParam, elements_per_object<TypeParam>>(*this->farheap_, this->count)));
}
TYPED_TEST(borders, vectors_of_two_in_an_object) {
  ASSERT_NO_FATAL_FAILURE((check_vector<TypeParam, 2>(*this->farheap_, this->count)));
}

TYPED_TEST(borders, lists) {
  list<TypeParam> all(*this->farheap_);
  for (std::uint64_t i = 0; i < this->count; ++i) all.emplace_back(i);
  this->farheap_->evict_all();
  for (unsigned round = 0; round < 2; ++round) {
    const scope here(*this->farheap_);
    std::uint64_t at = 0;
    for (const TypeParam& one : all.range(here)) ASSERT_TRUE(is(one, at++)) << at;
    ASSERT_EQ(at, this->count);
    all.emplace(all.begin_position(), 7u);
    all.pop_front();
    for (const TypeParam& one : all.range(here) | std::views::reverse) ASSERT_TRUE(is(one, --at)) << at;
  }
}

TYPED_TEST(borders, queues_and_stacks) {
  queue<TypeParam> waiting(*this->farheap_);
  stack<TypeParam> pile(*this->farheap_);
  for (std::uint64_t i = 0; i < this->count; ++i) {
    waiting.emplace(i);
    pile.emplace(i);
  }
  this->farheap_->evict_all();
  for (std::uint64_t i = 0; i < this->count; ++i) {
    {
      const scope here(*this->farheap_);
      ASSERT_TRUE(is(waiting.front(here), i)) << i;
      ASSERT_TRUE(is(pile.top(here), this->count - 1 - i)) << i;
      ASSERT_TRUE(is(waiting.back(here), this->count - 1)) << i;
    }
    waiting.pop();
    pile.pop();
  }
  EXPECT_TRUE(waiting.empty() && pile.empty());
}

TYPED_TEST(borders, maps) {
  hash_map<std::uint64_t, TypeParam> all(*this->farheap_);
  const std::size_t keys = std::min<std::size_t>(this->count, 500);
  for (std::uint64_t i = 0; i < keys; ++i) all.try_emplace(i, i);
  for (std::uint64_t i = 0; i < keys; i += 2) all.try_emplace(i, i + 1);
  for (std::uint64_t i = 1; i < keys; i += 2) all.insert_or_assign(i, std::move(*std::make_unique<TypeParam>(i + 2)));
  this->farheap_->evict_all();
  this->farheap_->evacuate(0);
  for (std::uint64_t i = 0; i < keys; ++i) {
    const scope here(*this->farheap_);
    const TypeParam* const found = all.find(here, i);
    ASSERT_TRUE(found != nullptr && is(*found, i % 2 == 0 ? i : i + 2)) << i;
  }
  for (std::uint64_t i = 0; i < keys; i += 3) ASSERT_TRUE(all.erase(i));
  EXPECT_EQ(all.size(), keys - (keys + 2) / 3);
}

TYPED_TEST(borders, arrays) {
  array<TypeParam, 3, 2> all(*this->farheap_);
  array<TypeParam, 0> none(*this->farheap_);
  EXPECT_TRUE(none.empty());
  const scope here(*this->farheap_);
  EXPECT_TRUE(none.range(here).empty() && std::ranges::empty(none.chunks(here)));
  EXPECT_THROW(static_cast<void>(none.at(here, 0)), std::out_of_range);
  none.for_each_chunk([](std::span<const TypeParam>, std::size_t) { ADD_FAILURE(); });
  none.prefetch(0, 0);
  swap(none, none);
  for (std::uint64_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(all.deref(here, i) == *std::make_unique<TypeParam>());
    all.deref_mut(here, i / 2, i % 2) = TypeParam(i);
  }
  this->farheap_->evict_all();
  for (std::uint64_t i = 0; i < all.size(); ++i) EXPECT_TRUE(is(all.at(here, i / 2, i % 2), i));
  array<TypeParam, 3, 2> taken(std::move(all));
  EXPECT_TRUE(all.empty());
  swap(all, taken);
  EXPECT_TRUE(is(all.at(here, 2, 1), 5));
}

}  // namespace
}  // namespace far
