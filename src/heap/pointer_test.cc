// far::unique_ptr and far::shared_ptr on the real kernel. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/units.h"
#include "far/runtime.h"
#include "far/shared_ptr.h"
#include "far/unique_ptr.h"
#include "fiber/scheduler.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

using unique_ptr_test = heap::real_pager_test<>;

struct item {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 7> content{};

  explicit item(std::uint64_t value) : number(value) {
    for (std::size_t i = 0; i < content.size(); ++i) content[i] = value * 31 + i;
  }
  [[nodiscard]] bool is(std::uint64_t value) const {
    bool right = number == value;
    for (std::size_t i = 0; i < content.size(); ++i) right &= content[i] == value * 31 + i;
    return right;
  }
};

TEST_F(unique_ptr_test, is_eight_bytes_and_shared_ptr_sixteen) {
  EXPECT_EQ(sizeof(unique_ptr<item>), 8u);
  EXPECT_EQ(sizeof(unique_ptr<item[]>), 8u);
  EXPECT_EQ(sizeof(shared_ptr<item>), 16u);
}

TEST_F(unique_ptr_test, holds_what_was_put_into_it) {
  runtime farheap(heap::small_runtime());
  unique_ptr<item> one = make_unique<item>(farheap, 5);
  const scope here(farheap);
  EXPECT_TRUE(one.deref(here).is(5));
  one.deref_mut(here) = item(6);
  EXPECT_TRUE(one.deref(here).is(6));
  unique_ptr<item> moved = std::move(one);
  EXPECT_FALSE(one);
  EXPECT_TRUE(moved.deref(here).is(6));
  EXPECT_TRUE(moved.read().is(6));
  moved.write(item(7));
  EXPECT_TRUE(moved.deref(here).is(7));
}

// Three times the budget, so most of it is remote; each path in turn.
void store_and_read_back(double page_path_share) {
  runtime_options chosen = heap::small_runtime();
  chosen.page_path_share = page_path_share;
  runtime farheap(chosen);
  constexpr std::size_t count = 48 * mib / 80;
  std::vector<unique_ptr<item>> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) all.push_back(make_unique<item>(farheap, i));
  for (unsigned round = 0; round < 2; ++round) {
    std::size_t wrong = 0;
    std::uint64_t next = 1;
    for (std::size_t i = 0; i < count / 4; ++i) {
      next = next * 6364136223846793005u + 1442695040888963407u;
      const std::size_t at = (next >> 33) % count;
      const scope here(farheap);
      wrong += !all[at].deref(here).is(at);
    }
    EXPECT_EQ(wrong, 0u);
  }
  farheap.validate();
  const runtime_statistics now = farheap.statistics();
  EXPECT_GT(now.evicted_pages, count * 80 / page_bytes / 2);
  if (page_path_share > 1) {
    EXPECT_GT(now.object_fetches, count / 8);
  } else if (page_path_share == 0) {
    EXPECT_EQ(now.object_fetches, 0u);
  }
}

TEST_F(unique_ptr_test, comes_back_object_by_object) {
  store_and_read_back(2);
}
TEST_F(unique_ptr_test, comes_back_page_by_page) {
  store_and_read_back(0);
}
TEST_F(unique_ptr_test, comes_back_as_its_cards_say) {
  store_and_read_back(0.8);
}

void use_in_scope_of_another(bool newer) {
  runtime first(heap::small_runtime());
  runtime second(heap::small_runtime());
  runtime& home = newer ? first : second;
  runtime& other = newer ? second : first;
  const unique_ptr<item> one = make_unique<item>(home, 7u);
  const scope here(other);
  static_cast<void>(one.deref(here).is(7));
}

// Whichever far heap lies above the other.
TEST_F(unique_ptr_test, in_a_scope_of_another_runtime_stops_the_program) {
  EXPECT_DEATH(use_in_scope_of_another(true), "a scope serves the objects of one runtime");
  EXPECT_DEATH(use_in_scope_of_another(false), "a scope serves the objects of one runtime");
}

// With and without pointers that move and go while their objects come.
TEST_F(unique_ptr_test, prefetches_objects_one_by_one_while_their_pointers_move_and_go) {
  runtime_options chosen = heap::small_runtime();
  chosen.far = "memory:?latency=200us";
  chosen.page_path_share = 2;
  runtime farheap(chosen);
  std::vector<unique_ptr<item>> all;
  for (std::size_t i = 0; i < 3000; ++i) all.push_back(make_unique<item>(farheap, i));
  farheap.evict_all();
  std::size_t started = 0;
  for (std::size_t first = 0; first + 30 <= all.size(); first += 30) {
    for (std::size_t i = first; i < first + 30; ++i) started += all[i].prefetch() ? 1 : 0;
    if (first % 90 == 0) continue;
    for (std::size_t i = first; i < first + 10; ++i) {
      unique_ptr<item> elsewhere = std::move(all[i]);
      if (first % 90 == 30) all[i] = std::move(elsewhere);
    }
  }
  EXPECT_GT(started, all.size() / 2);
  const std::uint64_t fetches_before = farheap.statistics().object_fetches;
  EXPECT_GT(fetches_before, 0u);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i]) continue;
    const scope here(farheap);
    wrong += all[i].deref(here).is(i) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(farheap.statistics().object_fetches, all.size()) << "each came at most once";
  farheap.validate();
}

}  // namespace
}  // namespace far
