// far::vector beside std::vector. Needs permission for userfaultfd.
#include "far/vector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/runtime.h"
#include "tests/containers/elements.h"

namespace far {
namespace {

using test::fragile;

// Iterators are what they say; ranges and views likewise.
using numbers = vector<std::uint64_t>;
static_assert(std::random_access_iterator<numbers::iterator>);
static_assert(std::random_access_iterator<numbers::const_iterator>);
static_assert(std::sized_sentinel_for<numbers::iterator, numbers::iterator>);
static_assert(std::is_same_v<std::iter_reference_t<numbers::const_iterator>, const std::uint64_t&>);
static_assert(std::is_convertible_v<numbers::iterator, numbers::const_iterator>);
static_assert(!std::is_convertible_v<numbers::const_iterator, numbers::iterator>);
static_assert(std::sortable<numbers::iterator>);
static_assert(std::permutable<vector<test::linked>::iterator>);
using chunks_of_numbers = decltype(std::declval<numbers&>().chunks(std::declval<const scope&>()));
static_assert(std::ranges::forward_range<chunks_of_numbers> && std::ranges::view<chunks_of_numbers>);
static_assert(std::is_nothrow_move_constructible_v<numbers> && std::is_nothrow_move_assignable_v<numbers>);
static_assert(!std::is_copy_constructible_v<numbers>);
static_assert(elements_per_object<std::uint64_t> == 8192 && elements_per_object<test::odd_size> == 2048);

// The kinds: an element, and how many share a far object.
template <typename T, std::size_t Count = elements_per_object<T>>
struct kind {
  using element = T;
  static constexpr std::size_t elements = Count;
};
using kinds =
    ::testing::Types<kind<std::uint64_t>, kind<std::uint64_t, 8>, kind<std::uint64_t, 1>, kind<std::uint64_t, 512>,
                     kind<test::odd_size>, kind<test::odd_size, 128>, kind<test::wide>, kind<fragile>, kind<fragile, 4>,
                     kind<test::linked>, kind<test::linked, 16>>;

template <typename Kind>
class vector_test : public test::containers_test {
 protected:
  using element = typename Kind::element;
  using far_vector = vector<element, Kind::elements>;

  // Elements of so many bytes in all, but not too many.
  [[nodiscard]] static std::size_t count_for(std::size_t bytes) {
    return std::min<std::size_t>(bytes / std::max(sizeof(element), Kind::elements <= 16 ? std::size_t{96} : 0),
                                 sizeof(element) >= 40 || std::is_same_v<element, test::linked> ? 400'000 : 3'000'000);
  }

  void expect_equal(const far_vector& mine, const std::vector<element>& model) {
    ASSERT_EQ(mine.size(), model.size());
    const scope here(*farheap_);
    ASSERT_TRUE(std::ranges::equal(mine.range(here), model));
  }
};
TYPED_TEST_SUITE(vector_test, kinds);

using fragile_vector_test = vector_test<kind<fragile>>;

TYPED_TEST(vector_test, grows_beyond_the_budget_and_keeps_every_element) {
  typename TestFixture::far_vector mine(*this->farheap_);
  const std::size_t count = this->count_for(40 * mib);
  for (std::size_t i = 0; i < count; ++i) mine.emplace_back(i);
  ASSERT_EQ(mine.size(), count);
  const auto expected = [](std::uint64_t i) { return typename TypeParam::element(i); };
  std::size_t wrong = 0;
  {
    std::size_t at = 0;
    const scope here(*this->farheap_);
    for (const auto& one : mine.range(here)) wrong += one == expected(at++) ? 0u : 1u;
  }
  for (std::size_t step = 0; step < 3000; ++step) {
    const std::size_t at = step * 7919 % count;
    const scope here(*this->farheap_);
    wrong += mine.at(here, at) == expected(at) ? 0u : 1u;
  }
  std::size_t at = 0;
  {
    const scope here(*this->farheap_);
    for (const auto part : mine.chunks(here)) {
      for (const auto& one : part) wrong += one == expected(at++) ? 0u : 1u;
    }
  }
  EXPECT_EQ(at, count);
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(this->farheap_->statistics().local_bytes, 16 * mib);
}

// Each operation is tried with a fuse that burns at its first constructor, then at its second, and so on until it
// succeeds. Until then nothing may have changed.
TEST_F(fragile_vector_test, what_throws_changes_nothing) {
  using fragile_vector = vector<fragile, 64>;
  const auto tries = [&](std::size_t size, auto operation, auto is_as_wanted) {
    for (int fuse = 1;; ++fuse) {
      fragile_vector mine(*farheap_);
      for (std::size_t i = 0; i < size; ++i) mine.emplace_back(i);
      const int living = fragile::living;
      fragile::fuse = fuse;
      bool threw = false;
      try {
        operation(mine);
      } catch (const std::runtime_error&) {
        threw = true;
      }
      fragile::fuse = -1;
      if (!threw) {
        EXPECT_GT(fuse, 1);
        EXPECT_TRUE(is_as_wanted(mine));
        return;
      }
      ASSERT_EQ(mine.size(), size) << "fuse " << fuse;
      EXPECT_EQ(fragile::living, living);
      for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(mine.read(i).number, i);
    }
  };
  for (const std::size_t size : {0, 1, 3, 4, 63, 64, 200}) {
    SCOPED_TRACE(size);
    tries(size, [](auto& mine) { mine.emplace_back(7u); }, [&](auto& mine) { return mine.size() == size + 1; });
    tries(size, [](auto& mine) { mine.push_back(fragile(7)); }, [&](auto& mine) { return mine.size() == size + 1; });
    tries(
        size, [](auto& mine) { mine.resize(mine.size() + 150); },
        [&](auto& mine) { return mine.size() == size + 150 && mine.read(size + 149).number == 0; });
    tries(
        size, [](auto& mine) { mine.resize(mine.size() + 150, fragile(9)); },
        [&](auto& mine) { return mine.size() == size + 150 && mine.read(size + 149).number == 9; });
    tries(
        size, [](auto& mine) { mine.append(std::views::iota(std::uint64_t{5}, std::uint64_t{105})); },
        [&](auto& mine) { return mine.size() == size + 100 && mine.read(size + 99).number == 104; });
    if (size > 0) {
      tries(size, [&](auto& mine) { EXPECT_EQ(mine.clone().size(), size); }, [](auto&) { return true; });
    }
  }
}

TEST_F(fragile_vector_test, an_element_of_its_own_may_be_added) {
  vector<fragile, 64> mine(*farheap_, 1, fragile(42));
  for (unsigned i = 0; i < 200; ++i) {
    const scope here(*farheap_);
    mine.push_back(mine.front(here));
  }
  for (std::size_t i = 0; i < mine.size(); ++i) ASSERT_EQ(mine.read(i).number, 42u);
}

TEST_F(fragile_vector_test, a_wrong_index_throws) {
  numbers mine(*farheap_, 10);
  const scope here(*farheap_);
  EXPECT_THROW(static_cast<void>(mine.at(here, 10)), std::out_of_range);
  EXPECT_THROW(mine.at_mut(here, ~std::size_t{0}) = 1, std::out_of_range);
  EXPECT_THROW(static_cast<void>(mine.read(10)), std::out_of_range);
  EXPECT_THROW(mine.write(10, 1), std::out_of_range);
  std::array<std::uint64_t, 3> three{};
  EXPECT_THROW(mine.read(8, three), std::out_of_range);
  EXPECT_THROW(mine.write(~std::size_t{0}, three), std::out_of_range);
  EXPECT_THROW(mine.erase(9, 2), std::out_of_range);
  EXPECT_THROW(mine.emplace(11, 1u), std::out_of_range);
  EXPECT_THROW(mine.prefetch(1, 10), std::out_of_range);
  EXPECT_THROW(mine.reserve(~std::size_t{0}), std::length_error);
  EXPECT_THROW(mine.resize(numbers::max_size() + 1), std::length_error);
  EXPECT_EQ(mine.size(), 10u);
}

TEST_F(fragile_vector_test, copies_in_and_out_cross_chunks) {
  numbers mine(*farheap_, 30'000);
  std::vector<std::uint64_t> values(20'000);
  std::iota(values.begin(), values.end(), 1u);
  mine.write(5'000, values);
  farheap_->evict_all();
  std::vector<std::uint64_t> all(30'000);
  mine.read(0, all);
  EXPECT_EQ(all[4'999], 0u);
  EXPECT_TRUE(std::equal(values.begin(), values.end(), all.begin() + 5'000));
  EXPECT_EQ(all[25'000], 0u);
  mine.fill(3);
  const scope here(*farheap_);
  EXPECT_TRUE(std::ranges::all_of(mine.range(here), [](std::uint64_t one) { return one == 3; }));
}

TEST_F(fragile_vector_test, walks_in_both_directions_and_by_jumps) {
  const std::size_t count = 4'000'000;  // twice the budget
  numbers mine(*farheap_, std::views::iota(std::uint64_t{0}, std::uint64_t{count}));
  const scope here(*farheap_);
  const auto all = mine.range(here);
  std::uint64_t at = count;
  for (auto one = all.end(); one != all.begin();) ASSERT_EQ(*--one, --at);
  for (std::uint64_t wanted = 0; wanted < count; wanted += 99'991) {
    ASSERT_EQ(*std::ranges::lower_bound(all, wanted), wanted);
    ASSERT_EQ(all.begin()[static_cast<std::ptrdiff_t>(wanted)], wanted);
  }
  // A zig-zag around the borders of chunks and pages.
  auto one = all.begin();
  for (std::ptrdiff_t border = 512; border < 40'000; border += 512) {
    for (std::ptrdiff_t step : {-1, 0, -2, 1, -3, 2, -513, 511}) {
      if (border + step < 0) continue;
      one = all.begin() + (border + step);
      ASSERT_EQ(*one, static_cast<std::uint64_t>(border + step));
      ASSERT_EQ(*++one, static_cast<std::uint64_t>(border + step + 1));
    }
  }
}

TEST_F(fragile_vector_test, chunks_cover_all_once) {
  numbers mine(*farheap_, std::views::iota(std::uint64_t{0}, std::uint64_t{100'001}));
  const scope here(*farheap_);
  std::size_t count = 0;
  for (const std::span<const std::uint64_t> part : mine.chunks(here, non_temporal)) {
    EXPECT_LE(part.size_bytes(), 64 * kib);
    EXPECT_EQ(part.front(), count);
    count += part.size();
  }
  EXPECT_EQ(count, mine.size());
  EXPECT_EQ(mine.chunk(here, 8191).size(), 1u);
  EXPECT_EQ(mine.chunk(here, 100'000).front(), 100'000u);
  EXPECT_TRUE(numbers(*farheap_).chunks(here).empty());
}

TEST_F(fragile_vector_test, a_walk_that_uses_elements_once_finds_them_all) {
  constexpr std::uint64_t count = 3'000'000;
  numbers mine(*farheap_, std::views::iota(std::uint64_t{0}, count));
  farheap_->evict_all();
  {
    const scope here(*farheap_);
    std::uint64_t at = 0;
    for (const std::uint64_t one : mine.range(here, non_temporal)) ASSERT_EQ(one, at++);
    ASSERT_EQ(at, count);
    for (std::uint64_t& one : mine.range_mut(here, non_temporal)) one += 1;
    const auto all = mine.range(here, non_temporal);
    ASSERT_EQ(all.begin()[1'234'567], 1'234'568u);
    for (auto one = all.end(); one != all.begin();) ASSERT_EQ(*--one, at--);
  }
  for (std::size_t index = 0; index < count; index += 7919) {
    const scope here(*farheap_);
    ASSERT_EQ(mine.deref(here, index, non_temporal), index + 1);
    mine.deref_mut(here, index, non_temporal) += 1;
  }
  for (std::size_t index = 0; index < count; index += 7919) ASSERT_EQ(mine.read(index), index + 2);
  std::size_t changed = 0;
  const scope here(*farheap_);
  for (const std::span<std::uint64_t> part : mine.chunks_mut(here, non_temporal)) changed += part.size();
  EXPECT_EQ(changed, count);
}

// How many pages of `often` have to come back when others are walked over in between.
template <typename Use>
  requires std::invocable<Use, std::size_t, const scope&>
std::uint64_t fetched_again(runtime& farheap, const numbers& often, const numbers& others, const Use& use) {
  std::uint64_t fetched = 0;
  for (int round = 0; round < 6; ++round) {
    const std::uint64_t before = farheap.statistics().fetched_pages;
    for (int times = 0; times < 2; ++times) {
      for (std::size_t first = 0; first < often.size(); first += 512) {
        const scope here(farheap);
        static_cast<void>(often.deref(here, first));
      }
    }
    if (round > 1) fetched += farheap.statistics().fetched_pages - before;
    for (std::size_t first = 0; first < others.size(); first += 512) {
      const scope here(farheap);
      use(first, here);
    }
  }
  return fetched;
}
template <typename... How>
std::uint64_t fetched_again(runtime& farheap, const numbers& often, const numbers& others, How... how) {
  return fetched_again(farheap, often, others, [&](std::size_t first, const scope& here) {
    static_cast<void>(others.deref(here, first, how...));
  });
}

TEST_F(fragile_vector_test, what_is_used_once_does_not_displace_what_is_used_often) {
  const numbers often(*farheap_, 8 * mib / sizeof(std::uint64_t), 1);
  const numbers others(*farheap_, 48 * mib / sizeof(std::uint64_t), 1);
  const std::uint64_t usually = fetched_again(*farheap_, often, others);
  const std::uint64_t with_hint = fetched_again(*farheap_, often, others, non_temporal);
  EXPECT_LT(with_hint, usually / 2);
  const auto walk = [&](std::size_t first, const scope& here) {
    static_cast<void>(others.chunk(here, first, 512, non_temporal));
  };
  EXPECT_LT(fetched_again(*farheap_, often, others, walk), usually / 2);
}

TEST_F(fragile_vector_test, chunks_are_taken_in_pieces) {
  numbers mine(*farheap_, std::views::iota(std::uint64_t{0}, std::uint64_t{100'001}));
  const scope here(*farheap_);
  EXPECT_EQ(mine.chunk(here, 100, 50).size(), 50u);
  EXPECT_EQ(mine.chunk(here, 100, 50).back(), 149u);
  EXPECT_EQ(mine.chunk(here, 8191, 50).size(), 1u);
  EXPECT_EQ(mine.chunk(here, 100, 50, non_temporal).back(), 149u);
  EXPECT_EQ(mine.chunk_mut(here, 100'000, 50).size(), 1u);
  for (std::size_t first = 0; first < mine.size(); first += 512) {
    const std::span<const std::uint64_t> part = mine.chunk(here, first, 512);
    ASSERT_EQ(part.size(), std::min<std::size_t>(512, mine.size() - first));
    ASSERT_EQ(part.front(), first);
  }
}

// From the second piece on, the elements ahead of a walk come in without an access to them.
TEST_F(fragile_vector_test, a_walk_in_pieces_brings_in_what_is_ahead) {
  constexpr std::size_t piece = 4096;
  constexpr std::size_t ahead_pages = 60;
  vector<std::uint8_t> mine(*farheap_, 2 * mib);
  mine.fill(7);
  farheap_->evict_all();
  const std::uint64_t before = farheap_->statistics().fetched_pages;
  const std::size_t begin = 512 * kib;
  for (std::size_t first = begin; first < begin + 2 * piece; first += piece) {
    const scope here(*farheap_);
    ASSERT_EQ(mine.chunk(here, first, piece).front(), 7);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (farheap_->statistics().fetched_pages < before + ahead_pages) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline)
        << "came in: " << farheap_->statistics().fetched_pages - before << " pages";
    std::this_thread::yield();
  }
}

// How many accesses wait for the far tier in a walk over remote elements, `step` of them at a time.
std::uint64_t waits_of(const numbers& mine, runtime& in, std::ptrdiff_t step) {
  in.evict_all();
  const std::uint64_t before = in.statistics().page_fetches;
  const auto count = static_cast<std::ptrdiff_t>(mine.size());
  std::uint64_t sum = 0;
  for (std::ptrdiff_t at = step > 0 ? 0 : count - 1; at >= 0 && at < count; at += step) {
    sum += mine.read(static_cast<std::size_t>(at));
  }
  EXPECT_GT(sum, 0u);
  return in.statistics().page_fetches - before;
}

TEST_F(fragile_vector_test, strides_are_prefetched) {
  const numbers mine(*farheap_, 1'000'000, 1);
  const std::ptrdiff_t three_pages = 3 * 512;
  EXPECT_LT(waits_of(mine, *farheap_, three_pages), 1'000'000u / three_pages / 3);
  EXPECT_LT(waits_of(mine, *farheap_, -three_pages), 1'000'000u / three_pages / 3);
}

// Elements are used in an order that only the program knows.
TEST_F(fragile_vector_test, a_prefetcher_may_be_plugged_in) {
  constexpr std::size_t page = 512, pages = 1999, count = pages * page;
  // From page to page, in an order that comes to no page twice.
  const auto after = [](std::size_t index) { return index / page * 733 % pages * page; };
  numbers mine(*farheap_, count, 1);
  std::size_t asked = 0;
  const auto waits = [&] {
    farheap_->evict_all();
    const std::uint64_t before = farheap_->statistics().page_fetches;
    for (std::size_t i = 0, at = page; i < 500; ++i, at = after(at)) {
      const scope here(*farheap_);
      EXPECT_EQ(mine.deref(here, at), 1u);
    }
    return farheap_->statistics().page_fetches - before;
  };
  const std::uint64_t without = waits();
  mine.prefetch_by([&](std::size_t index, const auto& fetch) {
    ++asked;
    for (unsigned i = 0; i < 8; ++i) fetch(index = after(index), 1);
    fetch(count, 1);  // not there
  });
  numbers moved(std::move(mine));
  mine = std::move(moved);
  EXPECT_LT(waits(), without / 2);
  EXPECT_GT(asked, 100u);
  asked = 0;
  farheap_->evict_all();
  {
    const scope here(*farheap_);
    EXPECT_EQ(std::ranges::count(mine.range(here), 1u), std::ptrdiff_t{count});
    EXPECT_GE(asked, count / page / 2);
    asked = 0;
    for (const std::span<const std::uint64_t> part : mine.chunks(here)) EXPECT_EQ(part.front(), 1u);
    EXPECT_EQ(mine.chunk(here, 0).front(), 1u);
    EXPECT_EQ(asked, count / 8192 + 2);
  }
  asked = 0;
  farheap_->evict_all();
  {
    const scope here(*farheap_);
    const auto all = mine.range(here);
    for (std::size_t i = 0, at = page; i < 50; ++i, at = after(at)) EXPECT_EQ(all.begin()[static_cast<int>(at)], 1u);
    EXPECT_GE(asked, 5u) << "an iterator that jumps";
  }
  mine.prefetch_by([](std::size_t, const auto&) { throw std::runtime_error("no idea"); });
  farheap_->evict_all();
  EXPECT_THROW(static_cast<void>(mine.read(5)), std::runtime_error);
  mine.prefetch_by({});
  EXPECT_EQ(mine.read(5), 1u);
}

TEST_F(fragile_vector_test, many_fibers_visit_all_chunks) {
  const std::size_t count = 3'000'000;
  numbers mine(*farheap_, count);
  mine.for_each_chunk_mut(
      [](std::span<std::uint64_t> part, std::size_t first) { std::iota(part.begin(), part.end(), first); });
  std::atomic<std::uint64_t> sum{0};
  const auto add = [&](std::span<const std::uint64_t> part, std::size_t first) {
    EXPECT_EQ(part.front(), first);
    sum += std::reduce(part.begin(), part.end(), std::uint64_t{0});
  };
  mine.for_each_chunk(add);
  EXPECT_EQ(sum, std::uint64_t{count} * (count - 1) / 2);
  farheap_->run([&] { mine.for_each_chunk(add); });
  EXPECT_EQ(sum, std::uint64_t{count} * (count - 1));
  EXPECT_THROW(mine.for_each_chunk([](auto, std::size_t first) {
    if (first > 500'000) throw std::runtime_error("enough");
  }),
               std::runtime_error);
}

// Each element has one writer, and neighbours have different ones.
template <std::size_t Elements>
void write_from_many(runtime& farheap) {
  constexpr std::size_t count = Elements < 100 ? 400'000 : 3'000'000;
  constexpr std::size_t writers = 6;
  vector<std::uint64_t, Elements> mine(farheap, count);
  const auto work = [&](std::size_t self) {
    std::mt19937_64 random(self);
    for (unsigned i = 0; i < 30'000; ++i) {
      const std::size_t at = random() % (count / writers) * writers + self;
      const scope here(farheap);
      ++mine.deref_mut(here, at);
      static_cast<void>(mine.deref(here, random() % count));
    }
  };
  std::vector<task<void>> fibers;
  for (std::size_t i = 0; i + 2 < writers; ++i) fibers.push_back(farheap.spawn([&work, i] { work(i); }));
  std::thread one([&] { work(writers - 2); });
  std::thread other([&] { work(writers - 1); });
  for (unsigned i = 0; i < 5; ++i) farheap.evict_all();
  for (task<void>& running : fibers) running.join();
  one.join();
  other.join();
  for (std::size_t self = 0; self < writers; ++self) {
    std::mt19937_64 random(self);
    for (unsigned i = 0; i < 30'000; ++i) {
      const std::size_t at = random() % (count / writers) * writers + self;
      mine.write(at, mine.read(at) - 1);
      random();
    }
  }
  mine.for_each_chunk([](std::span<const std::uint64_t> part, std::size_t) {
    EXPECT_TRUE(std::ranges::all_of(part, [](std::uint64_t left) { return left == 0; }));
  });
}

TEST_F(fragile_vector_test, many_write_neighbours_while_pages_leave) {
  write_from_many<elements_per_object<std::uint64_t>>(*farheap_);
  write_from_many<8>(*farheap_);
}

TEST_F(fragile_vector_test, room_that_is_not_used_takes_no_memory) {
  numbers mine(*farheap_);
  mine.reserve(std::size_t{1} << 27);  // a gibibyte
  EXPECT_LT(farheap_->statistics().local_bytes, 1 * mib);
  mine.resize(std::size_t{1} << 27);
  EXPECT_LT(farheap_->statistics().local_bytes + farheap_->statistics().far_bytes, 1 * mib);
  mine.write(100'000'000, 5);
  EXPECT_EQ(mine.read(100'000'000), 5u);
  EXPECT_EQ(mine.read(100'000'001), 0u);
  mine.clear();
  EXPECT_EQ(mine.capacity(), 0u);
}

// One random operation on a vector and on its model.
template <typename FarVector, typename Element>
class random_steps {
 public:
  random_steps(runtime& in, unsigned seed) : farheap_(in), random_(seed), mine(in) {}

  void step() {
    const std::uint64_t value = random_() % 1'000'000;
    const auto kind = random_() % 12;
    if (kind < 6) {
      change_end(kind, value);
    } else {
      change_inside(kind, value);
    }
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : static_cast<std::size_t>(random_() % end); }

  void change_end(std::uint64_t kind, std::uint64_t value) {
    switch (kind) {
      case 0:
        for (std::size_t i = 0, count = below(200); i < count; ++i) {
          mine.emplace_back(value + i);
          model.emplace_back(value + i);
        }
        break;
      case 1: {
        const std::size_t count = below(model.size() + 100);
        mine.resize(count);
        model.resize(count);
        break;
      }
      case 2:
        mine.reserve(model.size() + below(300));
        EXPECT_GE(mine.capacity(), mine.size());
        break;
      case 3: mine.shrink_to_fit(); break;
      case 4:
        if (model.empty()) break;
        mine.pop_back();
        model.pop_back();
        break;
      case 5: {
        const auto values = std::views::iota(value, value + below(500));
        mine.append(values);
        for (const std::uint64_t one : values) model.emplace_back(one);
        break;
      }
      default: break;
    }
  }

  void change_inside(std::uint64_t kind, std::uint64_t value) {
    const std::size_t at = below(model.size() + 1);
    const auto place = model.begin() + static_cast<std::ptrdiff_t>(at);
    switch (kind) {
      case 6:
        mine.emplace(at, value);
        model.emplace(place, value);
        break;
      case 7: {
        const std::size_t count = below(std::min<std::size_t>(model.size() - at, 20) + 1);
        mine.erase(at, count);
        model.erase(place, place + static_cast<std::ptrdiff_t>(count));
        break;
      }
      case 8:
        if (at == model.size()) break;
        mine.write(at, Element(value));
        model[at] = Element(value);
        break;
      case 9: {
        FarVector other(std::move(mine));
        EXPECT_TRUE(mine.empty());
        mine.emplace_back(1u);
        swap(mine, other);
        break;
      }
      case 10:
        if (random_() % 4 == 0) {
          mine.clear();
          model.clear();
        } else {
          const scope here(farheap_);
          const auto all = mine.range_mut(here);
          std::sort(all.begin(), all.end());
          std::sort(model.begin(), model.end());
        }
        break;
      default: farheap_.evict_all();
    }
  }

  runtime& farheap_;
  std::mt19937_64 random_;

 public:
  FarVector mine;
  std::vector<Element> model;
};

TYPED_TEST(vector_test, does_what_std_vector_does) {
  for (const unsigned seed : {1u, 2u, 3u, 4u}) {
    random_steps<typename TestFixture::far_vector, typename TypeParam::element> both(*this->farheap_, seed);
    for (unsigned step = 0; step <= 400; ++step) {
      both.step();
      if (step % 20 != 0) continue;
      SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
      ASSERT_NO_FATAL_FAILURE(this->expect_equal(both.mine, both.model));
    }
  }
}

}  // namespace
}  // namespace far
