// far::list beside std::list. Needs permission for userfaultfd.
#include "far/list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/detail/grace.h"
#include "far/runtime.h"
#include "tests/containers/elements.h"

namespace far {
namespace {

using test::fragile;

static_assert(std::bidirectional_iterator<list<int>::iterator>);
static_assert(std::bidirectional_iterator<list<int>::const_iterator>);
static_assert(std::is_convertible_v<list<int>::iterator, list<int>::const_iterator>);
static_assert(!std::is_convertible_v<list<int>::const_iterator, list<int>::iterator>);
static_assert(sizeof(list<int>::position) == 4);

template <typename Element>
class list_test : public test::containers_test {
 protected:
  void expect_equal(const list<Element>& mine, const std::list<Element>& model) {
    ASSERT_EQ(mine.size(), model.size());
    const scope here(*farheap_);
    ASSERT_TRUE(std::ranges::equal(mine.range(here), model));
    // The other way round.
    ASSERT_TRUE(std::ranges::equal(mine.range(here, non_temporal), model));
    auto at = mine.range(here).end();
    for (auto one = model.rbegin(); one != model.rend(); ++one) ASSERT_TRUE(*--at == *one);
    ASSERT_TRUE(at == mine.range(here).begin());
  }
};
using elements = ::testing::Types<std::uint64_t, test::odd_size, test::wide, fragile, test::linked>;
TYPED_TEST_SUITE(list_test, elements);
using fragile_list_test = list_test<fragile>;

TYPED_TEST(list_test, does_what_std_list_does) {
  std::mt19937_64 random(11);
  list<TypeParam> mine(*this->farheap_);
  std::list<TypeParam> model;
  // Positions stay good while others come and go.
  std::vector<std::pair<typename list<TypeParam>::position, typename std::list<TypeParam>::iterator>> known;
  for (unsigned step = 0; step < 6000; ++step) {
    const std::uint64_t value = random() % 1'000'000;
    const std::size_t some = known.empty() ? 0 : random() % known.size();
    const auto kind = random() % 12;
    if (kind < 3 || known.empty()) {
      known.emplace_back(mine.emplace_back(value), model.emplace(model.end(), value));
    } else if (kind < 5) {
      known.emplace_back(mine.emplace_front(value), model.emplace(model.begin(), value));
    } else if (kind < 8) {
      known.emplace_back(mine.emplace(known[some].first, value), model.emplace(known[some].second, value));
    } else if (kind < 10) {
      mine.erase(known[some].first);
      model.erase(known[some].second);
      known[some] = known.back();
      known.pop_back();
    } else {
      const std::size_t other = random() % known.size();
      mine.move_before(known[some].first, known[other].first);
      if (some != other) model.splice(known[some].second, model, known[other].second);
    }
    if (step % 1500 == 700) this->farheap_->evict_all();
    if (step % 500 != 0) continue;
    ASSERT_NO_FATAL_FAILURE(this->expect_equal(mine, model));
  }
  ASSERT_NO_FATAL_FAILURE(this->expect_equal(mine, model));
  const auto is_unwanted = [](const TypeParam& one) { return one < TypeParam(500'000u); };
  EXPECT_EQ(mine.erase_if(is_unwanted), std::erase_if(model, is_unwanted));
  ASSERT_NO_FATAL_FAILURE(this->expect_equal(mine, model));
  list<TypeParam> other(std::move(mine));
  EXPECT_TRUE(mine.empty());
  swap(mine, other);
  ASSERT_NO_FATAL_FAILURE(this->expect_equal(mine, model));
  mine.clear();
  EXPECT_TRUE(mine.empty());
  mine.emplace_back(1u);
  EXPECT_EQ(mine.size(), 1u);
}

TYPED_TEST(list_test, sorts_merges_and_splices_as_std_list_does) {
  std::mt19937_64 random(5);
  const auto fill = [&](list<TypeParam>& mine, std::list<TypeParam>& model, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      const std::uint64_t value = random() % 200;  // many are equal
      if (random() % 2 == 0) {
        mine.emplace_back(value);
        model.emplace_back(value);
      } else {
        mine.emplace_front(value);
        model.emplace_front(value);
      }
    }
  };
  for (const unsigned count : {0u, 1u, 2u, 700u, 1500u}) {
    list<TypeParam> mine(*this->farheap_);
    std::list<TypeParam> model;
    fill(mine, model, count);
    list<TypeParam> other(*this->farheap_);
    std::list<TypeParam> other_model;
    fill(other, other_model, count / 2 + 1);
    this->farheap_->evict_all();
    mine.sort();
    model.sort();
    ASSERT_NO_FATAL_FAILURE(this->expect_equal(mine, model));
    other.sort([](const TypeParam& a, const TypeParam& b) { return b < a; });
    other_model.sort([](const TypeParam& a, const TypeParam& b) { return b < a; });
    ASSERT_NO_FATAL_FAILURE(this->expect_equal(other, other_model));
    other.sort();
    other_model.sort();
    this->farheap_->evict_all();
    mine.merge(other);
    model.merge(other_model);
    EXPECT_TRUE(other.empty());
    ASSERT_NO_FATAL_FAILURE(this->expect_equal(mine, model));
    fill(other, other_model, 40);
    const auto place = mine.begin_position();
    mine.splice(place, other, other.begin_position());
    model.splice(model.begin(), other_model, other_model.begin());
    mine.splice(place, other);
    model.splice(std::next(model.begin()), other_model);
    EXPECT_TRUE(other.empty());
    ASSERT_NO_FATAL_FAILURE(this->expect_equal(mine, model));
    mine.splice(mine.end_position(), other);   // of none
    other.splice(other.end_position(), mine);  // into an empty one
    EXPECT_TRUE(mine.empty());
    ASSERT_NO_FATAL_FAILURE(this->expect_equal(other, model));
  }
}

TYPED_TEST(list_test, moves_ranges_as_std_list_does) {
  std::mt19937_64 random(6);
  list<TypeParam> mine(*this->farheap_);
  std::list<TypeParam> model;
  for (std::uint64_t i = 0; i < 50; ++i) {
    mine.emplace_back(i);
    model.emplace_back(i);
  }
  for (unsigned step = 0; step < 300; ++step) {
    std::size_t cuts[3] = {random() % 51, random() % 51, random() % 51};
    std::ranges::sort(cuts);
    const bool forward = random() % 2 == 0;
    const std::size_t to = forward ? cuts[2] : cuts[0];
    const std::size_t first = forward ? cuts[0] : cuts[1];
    const std::size_t last = forward ? cuts[1] : cuts[2];
    const auto at = [&](std::size_t index) {
      const scope here(*this->farheap_);
      return std::ranges::next(mine.range(here).begin(), static_cast<std::ptrdiff_t>(index)).where();
    };
    const auto at_model = [&](std::size_t index) {
      return std::next(model.begin(), static_cast<std::ptrdiff_t>(index));
    };
    mine.move_before(at(to), at(first), at(last));
    if (to != first) model.splice(at_model(to), model, at_model(first), at_model(last));
    ASSERT_NO_FATAL_FAILURE(this->expect_equal(mine, model));
  }
}

TEST_F(fragile_list_test, sorting_is_stable_and_keeps_positions) {
  list<std::pair<std::uint32_t, std::uint32_t>> mine(*farheap_);
  const auto by_first = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::vector<decltype(mine)::position> known;
  for (std::uint32_t i = 0; i < 3000; ++i) known.push_back(mine.emplace_back((i * 7919) % 13, i));
  mine.sort(by_first);
  const scope here(*farheap_);
  EXPECT_TRUE(std::ranges::is_sorted(mine.range(here)));
  for (std::uint32_t i = 0; i < 3000; ++i) ASSERT_EQ(mine.deref(here, known[i]).second, i);
}

TEST_F(fragile_list_test, merging_keeps_the_order_of_equal_elements) {
  using numbered = std::pair<std::uint32_t, std::uint32_t>;
  const auto by_first = [](const numbered& a, const numbered& b) { return a.first < b.first; };
  list<numbered> mine(*farheap_);
  list<numbered> other(*farheap_);
  for (std::uint32_t i = 0; i < 300; ++i) (i % 3 == 0 ? other : mine).emplace_back(i / 30, i % 3 == 0 ? i + 1000 : i);
  mine.merge(other, by_first);
  mine.merge(mine, by_first);  // as of std::list, nothing
  EXPECT_TRUE(other.empty());
  EXPECT_EQ(mine.size(), 300u);
  const scope here(*farheap_);
  EXPECT_TRUE(std::ranges::is_sorted(mine.range(here))) << "those of the other list come last";
}

// Those that are passed may leave meanwhile.
TEST_F(fragile_list_test, merging_holds_no_scope_for_all) {
  list<std::uint64_t> mine(*farheap_);
  list<std::uint64_t> other(*farheap_);
  for (std::uint64_t i = 0; i < 100; ++i) mine.push_back(i);
  other.push_back(100);
  std::uint32_t since = 0;
  bool is_over = false;
  mine.merge(other, [&](std::uint64_t a, std::uint64_t b) {
    if (since == 0) since = detail::note_out_of_reach();
    is_over = is_over || detail::have_scopes_ended(since);
    return a < b;
  });
  EXPECT_TRUE(is_over);
  EXPECT_EQ(mine.size(), 101u);
}

TEST_F(fragile_list_test, what_throws_while_lists_change_loses_nothing) {
  list<fragile> mine(*farheap_);
  list<fragile> other(*farheap_);
  for (std::uint64_t i = 0; i < 2000; ++i) mine.emplace_back((i * 7919) % 2000);
  for (std::uint64_t i = 0; i < 100; ++i) other.emplace_back(i);
  std::vector<std::uint64_t> before;
  {
    const scope here(*farheap_);
    for (const fragile& one : mine.range(here)) before.push_back(one.number);
  }
  int compared = 0;
  EXPECT_THROW(mine.sort([&](const fragile& a, const fragile& b) {
    if (++compared == 9000) throw std::runtime_error("compared too much");
    return a < b;
  }),
               std::runtime_error);
  {
    const scope here(*farheap_);
    EXPECT_TRUE(std::ranges::equal(mine.range(here), before, {}, &fragile::number));
  }
  mine.sort();
  for (const int fuse : {1, 2, 30}) {
    fragile::fuse = fuse;
    EXPECT_THROW(mine.merge(other), std::runtime_error);
    fragile::fuse = -1;
    EXPECT_EQ(mine.size() + other.size(), 2100u);
    EXPECT_EQ(fragile::living, 2100);
    const scope here(*farheap_);
    EXPECT_TRUE(std::ranges::is_sorted(mine.range(here), {}, &fragile::number));
    EXPECT_TRUE(std::ranges::is_sorted(other.range(here), {}, &fragile::number));
  }
}

TEST_F(fragile_list_test, is_larger_than_the_budget) {
  list<std::uint64_t> mine(*farheap_);
  constexpr std::uint64_t count = 3'000'000;  // 48 MB of nodes
  for (std::uint64_t i = 0; i < count; ++i) mine.push_back(i);
  const scope here(*farheap_);
  std::uint64_t at = 0;
  for (const std::uint64_t one : mine.range(here)) ASSERT_EQ(one, at++);
  EXPECT_EQ(at, count);
  EXPECT_LE(farheap_->statistics().local_bytes, 16 * mib);
}

TEST_F(fragile_list_test, what_throws_adds_nothing) {
  list<fragile> mine(*farheap_);
  for (std::uint64_t i = 0; i < 10; ++i) mine.emplace_back(i);
  fragile::fuse = 1;
  EXPECT_THROW(mine.emplace_front(5u), std::runtime_error);
  fragile::fuse = -1;
  EXPECT_EQ(mine.size(), 10u);
  mine.emplace_front(77u);
  const scope here(*farheap_);
  EXPECT_EQ(mine.front(here).number, 77u);
  EXPECT_EQ(std::ranges::distance(mine.range(here)), 11);
}

TEST_F(fragile_list_test, elements_that_are_used_once_can_be_changed) {
  list<std::uint64_t> mine(*farheap_);
  const auto first = mine.emplace_back(1u);
  for (std::uint64_t i = 2; i < 100'000; ++i) mine.emplace_back(i);
  farheap_->evict_all();
  {
    const scope here(*farheap_);
    for (std::uint64_t& one : mine.range_mut(here, non_temporal)) one *= 2;
    mine.deref_mut(here, first, non_temporal) += 1;
  }
  farheap_->evict_all();
  const scope here(*farheap_);
  EXPECT_EQ(mine.deref(here, first, non_temporal), 3u);
  std::uint64_t at = 0;
  for (const std::uint64_t one : mine.range(here, non_temporal)) ASSERT_EQ(one, ++at == 1 ? 3 : at * 2);
  EXPECT_EQ(at, 99'999u);
}

TEST_F(fragile_list_test, a_position_outlives_scopes) {
  list<fragile> mine(*farheap_);
  mine.emplace_back(1u);
  const auto two = mine.emplace_back(2u);
  mine.emplace_back(3u);
  farheap_->evict_all();
  mine.pop_front();
  const scope here(*farheap_);
  EXPECT_EQ(mine.deref(here, two).number, 2u);
  EXPECT_TRUE(mine.begin_position() == two);
  mine.deref_mut(here, two).number = 22;
  EXPECT_EQ(mine.from(here, two)->number, 22u);
  EXPECT_EQ(std::next(mine.from(here, two))->number, 3u);
  const auto after = mine.erase(mine.from(here, two).where());
  EXPECT_TRUE(after == mine.begin_position());
}

}  // namespace
}  // namespace far
