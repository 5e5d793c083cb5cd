// far::array, far::stack and far::queue. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/array.h"
#include "far/list.h"
#include "far/queue.h"
#include "far/runtime.h"
#include "far/shared_ptr.h"
#include "far/stack.h"
#include "far/vector.h"
#include "tests/containers/elements.h"

namespace far {
namespace {

using test::fragile;

static_assert(array<int, 3, 4, 5>::flat(2, 3, 4) == 59);
static_assert(array<int, 3, 4, 5>::extents[1] == 4);

template <typename Element>
class sequences_test : public test::containers_test {};
using elements = ::testing::Types<std::uint64_t, test::odd_size, test::wide, fragile, test::linked>;
TYPED_TEST_SUITE(sequences_test, elements);
using fragile_sequences_test = sequences_test<fragile>;

TYPED_TEST(sequences_test, a_queue_gives_what_it_was_given) {
  std::mt19937_64 random(5);
  queue<TypeParam> mine(*this->farheap_);
  std::deque<std::uint64_t> model;
  const std::size_t most = 24 * mib / sizeof(TypeParam) / (std::is_same_v<TypeParam, test::linked> ? 4 : 1);
  std::uint64_t next = 0;
  for (unsigned round = 0; round < 8; ++round) {
    for (std::size_t count = random() % (most / 2); count > 0; --count) {
      mine.emplace(next);
      model.push_back(next++);
    }
    if (round == 3) this->farheap_->evict_all();
    for (std::size_t count = random() % (model.size() + 1); count > 0; --count) {
      {
        const scope here(*this->farheap_);
        ASSERT_TRUE(mine.front(here) == TypeParam(model.front()));
        ASSERT_TRUE(mine.back(here) == TypeParam(model.back()));
      }
      if constexpr (std::is_same_v<TypeParam, test::linked>) {
        ASSERT_EQ(mine.take().number, model.front());
      } else {
        mine.pop();
      }
      model.pop_front();
    }
    ASSERT_EQ(mine.size(), model.size());
    queue<TypeParam> other(std::move(mine));
    ASSERT_TRUE(mine.empty());
    swap(mine, other);
  }
  mine.clear();
  EXPECT_TRUE(mine.empty());
  mine.emplace(3u);
  const scope here(*this->farheap_);
  EXPECT_TRUE(mine.front(here) == TypeParam(3u));
}

TYPED_TEST(sequences_test, a_stack_gives_back_in_reverse) {
  stack<TypeParam> mine(*this->farheap_);
  const std::size_t count = 24 * mib / sizeof(TypeParam) / (std::is_same_v<TypeParam, test::linked> ? 4 : 1);
  for (std::size_t i = 0; i < count; ++i) mine.emplace(i);
  for (std::size_t i = count; i > 0; --i) {
    {
      const scope here(*this->farheap_);
      ASSERT_TRUE(mine.top(here) == TypeParam(i - 1));
    }
    mine.pop();
  }
  EXPECT_TRUE(mine.empty());
  EXPECT_LT(this->farheap_->statistics().far_bytes, 8 * mib);  // it gave its room back
}

TEST_F(fragile_sequences_test, what_throws_adds_nothing) {
  queue<fragile> waiting(*farheap_);
  stack<fragile> pile(*farheap_);
  waiting.emplace(1u);
  pile.emplace(1u);
  fragile::fuse = 1;
  EXPECT_THROW(waiting.emplace(2u), std::runtime_error);
  fragile::fuse = 1;
  EXPECT_THROW(pile.emplace(2u), std::runtime_error);
  fragile::fuse = -1;
  EXPECT_EQ(waiting.size(), 1u);
  EXPECT_EQ(pile.take().number, 1u);
  EXPECT_EQ(waiting.take().number, 1u);
}

TEST_F(fragile_sequences_test, an_array_has_dimensions) {
  auto grid = std::make_unique<array<std::uint32_t, 300, 200, 100>>(*farheap_);  // 24 MB
  EXPECT_EQ(grid->size(), 6'000'000u);
  for (std::size_t i = 0; i < 300; ++i) {
    const scope here(*farheap_);
    for (std::size_t j = 0; j < 200; ++j) grid->deref_mut(here, i, j, 7) = static_cast<std::uint32_t>(i * 1000 + j);
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < 300; ++i) {
    const scope here(*farheap_);
    for (std::size_t j = 0; j < 200; ++j) {
      wrong += grid->at(here, i, j, 7) == i * 1000 + j && grid->at(here, i, j, 8) == 0 ? 0u : 1u;
      wrong += &grid->deref(here, i, j, 0) == &grid->deref(here, grid->flat(i, j, 0)) ? 0u : 1u;
    }
  }
  EXPECT_EQ(wrong, 0u);
  const scope here(*farheap_);
  EXPECT_THROW(static_cast<void>(grid->at(here, 0, 200, 0)), std::out_of_range);
  EXPECT_THROW(grid->at_mut(here, 0, 0, 100) = 1, std::out_of_range);
  EXPECT_THROW(static_cast<void>(grid->at(here, 6'000'000)), std::out_of_range);
}

TEST_F(fragile_sequences_test, an_array_destroys_its_elements) {
  array<fragile, 100> some(*farheap_);
  EXPECT_EQ(fragile::living, 100);
  array<fragile, 100> other(std::move(some));
  EXPECT_EQ(fragile::living, 100);
  EXPECT_TRUE(some.empty());
  grouped_array<fragile, 4, 10, 3> small(*farheap_);
  EXPECT_EQ(fragile::living, 130);
  small.write(29, fragile(6));
  const scope here(*farheap_);
  EXPECT_EQ(small.deref(here, 9, 2).number, 6u);
}

// As smart pointers of some libraries do.
struct hidden {
  std::uint64_t number = 0;
  void operator&() const = delete;
};
struct around_hidden {
  std::uint64_t other = 1;
  hidden part{2};
};

TEST_F(fragile_sequences_test, elements_may_have_an_operator_of_their_own_for_their_address) {
  vector<hidden> row(*farheap_, 3);
  row.fill(hidden{5});
  list<hidden> chain(*farheap_);
  chain.push_back(hidden{6});
  const shared_ptr<around_hidden> whole = make_shared<around_hidden>(*farheap_);
  const shared_ptr<hidden> part(whole, &around_hidden::part);
  const scope here(*farheap_);
  EXPECT_EQ(row.range(here)[1].number, 5u);
  EXPECT_EQ(chain.range(here).begin()->number, 6u);
  EXPECT_EQ(part.deref(here).number, 2u);
}

}  // namespace
}  // namespace far
