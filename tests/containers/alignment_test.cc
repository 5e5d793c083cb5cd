// Far containers of types with alignments above 16: each element has its type's alignment wherever it comes to lie.
// Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "far/array.h"
#include "far/hash_map.h"
#include "far/list.h"
#include "far/queue.h"
#include "far/stack.h"
#include "far/unique_ptr.h"
#include "far/vector.h"
#include "tests/containers/elements.h"

namespace far {
namespace {

template <std::size_t Alignment>
struct alignas(Alignment) block {
  std::uint64_t number = 0;
  std::uint64_t last = 0;
  block() = default;
  block(std::uint64_t value) : number(value), last(~value) {}
};

// Objects of it have far pointers, and the description of their type.
template <std::size_t Alignment>
struct alignas(Alignment) parent {
  std::uint64_t number = 0;
  std::uint64_t last = ~std::uint64_t{0};
  unique_ptr<std::uint64_t> child;
  parent() = default;
  parent(std::uint64_t value) : number(value), last(~value), child(make_unique<std::uint64_t>(*test::home, value)) {}
};

template <std::size_t Alignment>
[[nodiscard]] bool holds(const block<Alignment>& one, std::uint64_t number) {
  return reinterpret_cast<std::uintptr_t>(&one) % Alignment == 0 && one.number == number && one.last == ~number;
}
template <std::size_t Alignment>
[[nodiscard]] bool holds(const parent<Alignment>& one, std::uint64_t number) {
  return reinterpret_cast<std::uintptr_t>(&one) % Alignment == 0 && one.number == number && one.last == ~number &&
         one.child.read() == number;
}

}  // namespace

template <std::size_t Alignment>
struct pointers_of<parent<Alignment>> {
  static void visit(parent<Alignment>& in, auto&& pointer) { pointer(in.child); }
};

namespace {

using types = ::testing::Types<block<32>, block<64>, block<512>, block<2048>, block<4096>, parent<32>, parent<64>,
                               parent<1024>, parent<2048>, parent<4096>>;

template <typename T>
class container_alignment_test : public test::containers_test {
 protected:
  // Objects without an alignment lie before those of the container, which have new places afterwards.
  void move_everything() {
    static_cast<void>(farheap_->evacuate(0));
    farheap_->set_page_path_share(farheap_->statistics().evicted_pages % 2 == 0 ? 2.0 : 0.0);
    farheap_->evict_all();
  }
  void be_in_the_way(std::size_t i) { others_.push_back(make_unique<char[]>(*farheap_, 1 + i % 70)); }
  void TearDown() override {
    others_.clear();
    containers_test::TearDown();
  }

  static constexpr std::size_t count = 300;
  std::vector<unique_ptr<char[]>> others_;
};
TYPED_TEST_SUITE(container_alignment_test, types);

template <typename Sequence>
[[nodiscard]] std::size_t count_wrong(runtime& farheap, const Sequence& all) {
  std::size_t wrong = 0;
  const scope here(farheap);
  std::uint64_t number = 0;
  for (const auto& one : all.range(here)) wrong += holds(one, number++) ? 0 : 1;
  return wrong + (number == all.size() ? 0 : 1);
}

// Elements in pages of their own, and in groups that move; both grow from a few elements on.
TYPED_TEST(container_alignment_test, vectors) {
  vector<TypeParam> whole(*this->farheap_);
  vector<TypeParam, 1> single(*this->farheap_);
  vector<TypeParam, 4> grouped(*this->farheap_);
  for (std::uint64_t i = 0; i < this->count; ++i) {
    this->be_in_the_way(i);
    whole.emplace_back(i);
    single.emplace_back(i);
    grouped.emplace_back(i);
    if (i == 1) {
      EXPECT_EQ(count_wrong(*this->farheap_, whole), 0u);
    }
  }
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(count_wrong(*this->farheap_, whole), 0u);
    EXPECT_EQ(count_wrong(*this->farheap_, single), 0u);
    EXPECT_EQ(count_wrong(*this->farheap_, grouped), 0u);
    this->move_everything();
  }
}

TYPED_TEST(container_alignment_test, arrays_lists_stacks_and_queues) {
  array<TypeParam, TestFixture::count> fixed(*this->farheap_);
  list<TypeParam> links(*this->farheap_);
  stack<TypeParam> pile(*this->farheap_);
  queue<TypeParam> line(*this->farheap_);
  for (std::uint64_t i = 0; i < this->count; ++i) {
    const scope here(*this->farheap_);
    fixed.deref_mut(here, i) = TypeParam(i);
    links.emplace_back(i);
    pile.emplace(i);
    line.emplace(i);
  }
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(count_wrong(*this->farheap_, fixed), 0u);
    EXPECT_EQ(count_wrong(*this->farheap_, links), 0u);
    this->move_everything();
  }
  std::size_t wrong = 0;
  for (std::uint64_t i = 0; i < this->count; ++i) {
    const scope here(*this->farheap_);
    wrong += holds(line.front(here), i) && holds(pile.top(here), this->count - 1 - i) ? 0 : 1;
    line.pop();
    pile.pop();
  }
  EXPECT_EQ(wrong, 0u);
}

TYPED_TEST(container_alignment_test, values_of_hash_maps) {
  hash_map<std::uint64_t, TypeParam> all(*this->farheap_);
  for (std::uint64_t i = 0; i < this->count; ++i) {
    this->be_in_the_way(i);
    all.try_emplace(i, i);
  }
  for (int round = 0; round < 3; ++round) {
    std::size_t wrong = 0;
    for (std::uint64_t i = 0; i < this->count; ++i) {
      const scope here(*this->farheap_);
      const TypeParam* const found = all.find(here, i);
      wrong += found != nullptr && holds(*found, i) ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0u);
    this->move_everything();
  }
}

}  // namespace
}  // namespace far
