// Containers of two runtimes that exchange what they have. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/array.h"
#include "far/hash_map.h"
#include "far/list.h"
#include "far/queue.h"
#include "far/scope.h"
#include "far/stack.h"
#include "far/string.h"
#include "far/vector.h"
#include "tests/containers/elements.h"

namespace far {
namespace {

struct owner_or_owned {
  unique_ptr<owner_or_owned> owned;
  std::uint64_t number = 0;
};

}  // namespace

template <>
struct pointers_of<owner_or_owned> {
  static void visit(owner_or_owned& in, auto&& pointer) { pointer(in.owned); }
};

namespace {

using test::fragile;

// Each has its own table of pages at hand, and the object path is on, so that a scope of the wrong one is noticed.
class two_runtimes : public test::containers_test {
 protected:
  void SetUp() override {
    containers_test::SetUp();
    if (IsSkipped()) return;
    other_ = std::make_unique<runtime>(heap::small_runtime());
    farheap_->set_page_path_share(2);
    other_->set_page_path_share(2);
  }
  void TearDown() override {
    if (other_ != nullptr) other_->validate();
    other_.reset();
    containers_test::TearDown();
  }
  void evict_all() const {
    farheap_->evict_all();
    other_->evict_all();
  }

  std::unique_ptr<runtime> other_;
};

std::string text_of(std::size_t length) {
  std::string text(length, 'x');
  for (std::size_t i = 0; i < length; ++i) text[i] = static_cast<char>('a' + (i * 7 + length) % 26);
  return text;
}

TEST_F(two_runtimes, texts_are_copied_from_one_to_the_other) {
  for (const std::size_t length : {0u, 22u, 23u, 24u, 100u, 4080u, 4081u, 70'000u}) {
    const string here(*farheap_, text_of(length));
    for (unsigned round = 0; round < 20; ++round) {
      evict_all();
      const string there = here.clone(*other_);
      evict_all();
      ASSERT_EQ(there, text_of(length)) << length;
      ASSERT_EQ(here, there);
    }
  }
}

// Text that grows moves to the runtime that it is given.
TEST_F(two_runtimes, texts_grow_from_one_into_the_other) {
  for (unsigned round = 0; round < 10; ++round) {
    string moving;
    std::string model;
    for (std::size_t step = 0; step < 12; ++step) {
      const std::string more = text_of(1 + step * step * 60);
      runtime& in = step % 2 == 0 ? *farheap_ : *other_;
      if (step % 3 == 0) moving.reserve(in, model.size() + more.size());
      moving.append(in, more);
      model += more;
      evict_all();
      ASSERT_EQ(moving, model) << step;
    }
  }
}

template <typename T>
void copy_between(runtime& mine, runtime& other) {
  constexpr std::size_t count = 20'000;
  vector<T> from(other, count);
  for (std::size_t i = 0; i < count; ++i) from.write(i, T(i));
  vector<T> to(mine, count);
  vector<T, 8> groups(mine, count);
  const vector<T, 8> other_groups = [&] {
    vector<T, 8> filled(other, count);
    for (std::size_t i = 0; i < count; ++i) filled.write(i, T(i));
    return filled;
  }();
  other.evict_all();
  to.copy_from(from, 17, count - 17, 0);
  groups.copy_from(other_groups, 17, count - 17, 0);
  mine.evict_all();
  for (std::size_t i = 0; i < count - 17; ++i) {
    ASSERT_EQ(to.read(i), T(i + 17)) << i;
    ASSERT_EQ(groups.read(i), T(i + 17)) << i;
  }
}

TEST_F(two_runtimes, ranges_are_copied_from_one_to_the_other) {
  copy_between<std::uint64_t>(*farheap_, *other_);
  copy_between<test::odd_size>(*farheap_, *other_);
}

// Swapped, and swapped back, and moved into one another.
template <typename Container, typename Fill, typename Check>
void exchange(runtime& mine, runtime& other, const Fill& fill, const Check& check) {
  Container one(mine);
  Container two(other);
  fill(one, 100u);
  fill(two, 3'000u);
  swap(one, two);
  check(one, 3'000u, other);
  check(two, 100u, mine);
  swap(one, one);
  check(one, 3'000u, other);
  one = std::move(two);
  check(one, 100u, mine);
  fill(two, 50u);
  check(two, 50u, two.home().home());
  swap(one, two);
  check(one, 50u, one.home().home());
  check(two, 100u, mine);
}

TEST_F(two_runtimes, sequences_are_swapped) {
  const auto fill = [](auto& all, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) all.emplace_back(i);
  };
  const auto check = [&](auto& all, std::uint64_t count, runtime& home) {
    EXPECT_EQ(&all.home().home(), &home);
    ASSERT_EQ(all.size(), count);
    evict_all();
    const scope here(home);
    std::uint64_t wrong = 0;
    std::uint64_t at = 0;
    for (const fragile& one : all.range(here)) wrong += one.number == at++ ? 0 : 1;
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(at, count);
  };
  exchange<vector<fragile>>(*farheap_, *other_, fill, check);
  exchange<vector<fragile, 4>>(*farheap_, *other_, fill, check);
  exchange<list<fragile>>(*farheap_, *other_, fill, check);
}

TEST_F(two_runtimes, queues_and_stacks_are_swapped) {
  queue<fragile> first(*farheap_);
  queue<fragile> second(*other_);
  stack<fragile> low(*farheap_);
  stack<fragile> high(*other_);
  for (std::uint64_t i = 0; i < 5'000; ++i) {
    first.emplace(i);
    second.emplace(i + 7);
    low.emplace(i);
    high.emplace(i + 7);
  }
  swap(first, second);
  swap(low, high);
  evict_all();
  for (std::uint64_t i = 0; i < 5'000; ++i) {
    ASSERT_EQ(first.take().number, i + 7);
    ASSERT_EQ(second.take().number, i);
    ASSERT_EQ(low.take().number, 4'999 - i + 7);
    ASSERT_EQ(high.take().number, 4'999 - i);
  }
}

TEST_F(two_runtimes, maps_are_swapped) {
  hash_map<std::uint64_t, string> one(*farheap_);
  hash_map<std::uint64_t, string> two(*other_);
  for (std::uint64_t i = 0; i < 500; ++i) one.put(i, text_of(i));
  for (std::uint64_t i = 0; i < 50; ++i) two.put(i, text_of(i + 1));
  swap(one, two);
  evict_all();
  for (std::uint64_t i = 0; i < 50; ++i) ASSERT_EQ(one.get(i), text_of(i + 1));
  for (std::uint64_t i = 0; i < 500; ++i) ASSERT_EQ(two.get(i), text_of(i));
  one = std::move(two);
  EXPECT_EQ(one.size(), 500u);
  EXPECT_EQ(&one.home().home(), farheap_.get());
}

// The owner of an object is moved, fetched alone, and evicted by another runtime than the object itself.
TEST_F(two_runtimes, objects_of_one_own_objects_of_the_other) {
  constexpr std::uint64_t count = 6'000;
  std::vector<unique_ptr<test::linked>> all;
  std::vector<unique_ptr<test::linked>> garbage;
  for (std::uint64_t i = 0; i < count; ++i) {
    all.push_back(make_unique<test::linked>(*other_, i));
    garbage.push_back(make_unique<test::linked>(*other_, i));
  }
  garbage.clear();
  const auto swap_targets = [&](std::size_t a, std::size_t b) {
    const scope here(*other_);
    test::linked& first = all[a].deref_mut(here);
    test::linked& second = all[b].deref_mut(here);
    swap(first.target, second.target);
    std::swap(first.number, second.number);
  };
  for (unsigned round = 0; round < 6; ++round) {
    // Owners here and targets away, the other way round, both, and neither.
    if (round % 2 == 0) farheap_->evict_all();
    if (round % 3 == 0) other_->evict_all();
    static_cast<void>(farheap_->evacuate(0));
    static_cast<void>(other_->evacuate(0));
    farheap_->validate();
    other_->validate();
    for (std::size_t i = round; i + 1 < count; i += 7) swap_targets(i, i + 1);
    for (const unique_ptr<test::linked>& one : all) {
      const scope here(*other_);
      const test::linked& found = one.deref(here);
      const scope there(*farheap_);
      ASSERT_EQ(found.target.deref(there), found.number);
    }
  }
  EXPECT_GT(farheap_->statistics().evacuated_objects, 0u);
  EXPECT_GT(other_->statistics().evacuated_objects, 0u);
  for (std::size_t i = 0; i < count; i += 2) all[i].reset();
  evict_all();
}

// The same beside threads that use both.
TEST_F(two_runtimes, objects_of_one_own_objects_of_the_other_beside_threads) {
  constexpr std::uint64_t count = 6'000;
  std::vector<unique_ptr<test::linked>> all(count);
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> wrong{0};
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::uint64_t random = t + 1;
      for (std::uint64_t step = 0; step < 40'000; ++step) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const std::size_t at = (random >> 33) % (count / 3) * 3 + t;  // those of this thread
        if (!all[at]) {
          all[at] = make_unique<test::linked>(*other_, at);
          continue;
        }
        if (random % 5 == 0) {
          all[at].reset();
          continue;
        }
        const scope here(*other_);
        test::linked& found = all[at].deref_mut(here);
        const scope there(*farheap_);
        wrong += found.target.deref(there) == at ? 0 : 1;
        if (random % 3 == 0) found.target = make_unique<std::uint64_t>(*farheap_, at);
      }
    });
  }
  std::atomic<bool> ended{false};
  std::thread mover([&] {
    while (!ended) {
      evict_all();
      static_cast<void>(farheap_->evacuate(0));
      static_cast<void>(other_->evacuate(0));
    }
  });
  for (std::thread& one : threads) one.join();
  ended = true;
  mover.join();
  EXPECT_EQ(wrong, 0u);
}

// Each moves owners of what the other moves, at the same time. Owners and what they own lie in segments of their own:
// one that has both is held by the other's round.
TEST_F(two_runtimes, evacuate_beside_each_other_what_they_own_of_each_other) {
  constexpr std::uint64_t count = 10'000;
  const auto in_turn = [&](std::uint64_t i) -> runtime& { return i < count ? *farheap_ : *other_; };
  const auto make_pair_of = [&](std::uint64_t i) {
    return make_unique<owner_or_owned>(
        in_turn(i), owner_or_owned{make_unique<owner_or_owned>(in_turn(2 * count - 1 - i), owner_or_owned{{}, i}), i});
  };
  std::vector<unique_ptr<owner_or_owned>> all;
  for (std::uint64_t i = 0; i < 2 * count; ++i) all.push_back(make_pair_of(i));
  const auto count_wrong = [&] {
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < all.size(); ++i) {
      const scope here(in_turn(i));
      const scope there(in_turn(2 * count - 1 - i));
      const owner_or_owned& found = all[i].deref(here);
      wrong += found.number == i && found.owned.deref(there).number == i ? 0 : 1;
    }
    return wrong;
  };
  for (unsigned round = 0; round < 10; ++round) {
    std::vector<std::thread> movers;
    for (runtime* const one : {farheap_.get(), other_.get()}) {
      movers.emplace_back([one] {
        for (unsigned again = 0; again < 4; ++again) static_cast<void>(one->evacuate(0));
      });
    }
    for (std::thread& one : movers) one.join();
    farheap_->validate();
    other_->validate();
    ASSERT_EQ(count_wrong(), 0u) << round;
  }
  EXPECT_GT(farheap_->statistics().evacuated_objects, 0u);
  EXPECT_GT(other_->statistics().evacuated_objects, 0u);
}

TEST_F(two_runtimes, lists_are_spliced_and_merged) {
  list<test::linked> odd(*farheap_);
  list<test::linked> even(*other_);
  for (std::uint64_t i = 0; i < 2'000; ++i) (i % 2 == 0 ? even : odd).emplace_back(i);
  evict_all();
  odd.merge(even);
  EXPECT_TRUE(even.empty());
  even.splice(even.end_position(), odd);
  EXPECT_TRUE(odd.empty());
  evict_all();
  const scope here(*other_);
  std::uint64_t at = 0;
  for (const test::linked& one : even.range(here)) {
    ASSERT_EQ(one.number, at);
    ASSERT_EQ(one.target.read(), at);
    ++at;
  }
  EXPECT_EQ(at, 2'000u);
}

}  // namespace
}  // namespace far
