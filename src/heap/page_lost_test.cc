// A far tier that fails for good. Access to lost objects throws, and the rest of the far heap stays usable. Needs
// permission for userfaultfd.
#include "far/page_lost.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/memory_resource.h"
#include "far/runtime.h"
#include "far/shared_ptr.h"
#include "far/unique_ptr.h"
#include "platform/clock.h"
#include "tests/support/failing_tier.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

constexpr std::uint32_t always = 1'000'000;

// By the share of a page that makes it come back whole: 2 is never, 0 always.
class page_lost_test : public heap::real_pager_test<::testing::TestWithParam<double>> {
 protected:
  [[nodiscard]] static runtime_options options() {
    runtime_options chosen = heap::small_runtime();
    chosen.page_path_share = GetParam();
    return chosen;
  }
};
using lost_memory_test = heap::real_pager_test<::testing::TestWithParam<runtime_options::guard>>;

// From here on reads fail, until it is gone.
class failing_reads {
 public:
  explicit failing_reads(runtime& farheap) {
    farheap.evict_all();
    heap::failing_tier().set_failing_reads_per_million(always);
  }
  ~failing_reads() { heap::failing_tier().set_failing_reads_per_million(0); }
  failing_reads(const failing_reads&) = delete;
  failing_reads& operator=(const failing_reads&) = delete;
};

struct numbers {
  std::uint64_t first = 0;
  std::array<std::uint64_t, 63> others{};
};

using refused_writes_test = heap::real_pager_test<>;

// Pages that nobody uses leave as copies, which are their only bytes until the far tier has them.
TEST_F(refused_writes_test, put_the_copies_back) {
  runtime farheap(heap::small_runtime());
  std::vector<unique_ptr<numbers>> all;
  for (std::uint64_t i = 0; i < 4000; ++i) all.push_back(make_unique<numbers>(farheap, numbers{i}));
  const auto count_wrong = [&] {
    std::size_t wrong = 0;
    for (std::uint64_t i = 0; i < all.size(); ++i) wrong += all[i].read().first != i;
    return wrong;
  };
  heap::failing_tier().set_failing_writes_per_million(always);
  farheap.evict_all();
  EXPECT_GT(farheap.statistics().backend_errors, 0u);
  EXPECT_EQ(count_wrong(), 0u);
  heap::failing_tier().set_failing_writes_per_million(0);
  farheap.validate();
  farheap.evict_all();
  EXPECT_EQ(count_wrong(), 0u);
}

TEST_P(page_lost_test, every_access_throws_and_the_rest_stays_usable) {
  runtime farheap(options());
  std::vector<unique_ptr<numbers>> all;
  for (std::uint64_t i = 0; i < 4000; ++i) all.push_back(make_unique<numbers>(farheap, numbers{i}));
  {
    const failing_reads now(farheap);
    EXPECT_THROW(static_cast<void>(all[1000].read()), page_lost);
    EXPECT_THROW(all[1000].write(numbers{}), page_lost);
    const scope here(farheap);
    EXPECT_THROW(static_cast<void>(all[1000].deref(here)), page_lost);
    EXPECT_THROW(static_cast<void>(all[1000].deref_mut(here)), page_lost);
    EXPECT_THROW(static_cast<void>(all[1000].deref(here, non_temporal)), page_lost);
  }
  EXPECT_THROW(static_cast<void>(all[1000].read()), page_lost) << "what is lost stays lost";
  static_cast<void>(all[1000].prefetch());
  EXPECT_EQ(farheap.statistics().lost_pages, 1u);
  std::size_t lost = 0;
  for (std::uint64_t i = 0; i < all.size(); ++i) {
    lost += detail::unless_lost([&] { EXPECT_EQ(all[i].read().first, i); }) ? 0 : 1;
  }
  EXPECT_GE(lost, 1u);
  EXPECT_LE(lost, 8u) << "those of one page";
  farheap.validate();
  all.clear();  // the owners of what is lost, too
  for (std::uint64_t i = 0; i < 1000; ++i) all.push_back(make_unique<numbers>(farheap, numbers{i}));
  static_cast<void>(farheap.evacuate());
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(all[i].read().first, i);
  farheap.validate();
}

TEST_P(page_lost_test, owners_of_what_is_lost_can_be_moved) {
  runtime farheap(options());
  unique_ptr<numbers> one = make_unique<numbers>(farheap, numbers{7});
  unique_ptr<numbers> other = make_unique<numbers>(farheap, numbers{8});
  const failing_reads now(farheap);
  EXPECT_THROW(static_cast<void>(one.read()), page_lost);
  unique_ptr<numbers> moved = std::move(one);
  EXPECT_EQ(one, nullptr);
  EXPECT_THROW(static_cast<void>(moved.read()), page_lost);
  swap(moved, other);
  shared_ptr<numbers> shared = std::move(moved);
  EXPECT_THROW(static_cast<void>(shared.read()), page_lost);
  shared.reset();
  farheap.validate();
}

// Objects that a lost one owns leak, and nothing that is made later is mistaken for them.
struct branch {
  std::uint64_t number = 0;
  unique_ptr<branch> left;
  unique_ptr<branch> right;
};

}  // namespace

template <>
struct pointers_of<branch> {
  static void visit(branch& in, auto&& pointer) {
    pointer(in.left);
    pointer(in.right);
  }
};

namespace {

unique_ptr<branch> grow(runtime& farheap, std::uint64_t depth) {
  if (depth == 0) return nullptr;
  return make_unique<branch>(farheap, branch{depth, grow(farheap, depth - 1), grow(farheap, depth - 1)});
}

// Their words are gone with their runtime.
TEST_P(page_lost_test, what_lost_owners_in_another_runtime_had_stays) {
  runtime farheap(options());
  std::vector<unique_ptr<branch>> all(6'000);
  {
    runtime other(options());
    std::vector<unique_ptr<branch>> owners;
    for (std::uint64_t i = 0; i < all.size(); ++i) {
      all[i] = grow(farheap, 1);
      owners.push_back(make_unique<branch>(other, branch{i, grow(farheap, 1), nullptr}));
    }
    {
      const failing_reads now(other);
      for (std::size_t i = 0; i < owners.size(); i += 1'000) {
        const scope there(other);
        EXPECT_THROW(static_cast<void>(owners[i].deref(there)), page_lost);
      }
    }
    owners.clear();
    EXPECT_GT(other.statistics().abandoned_objects, 0u);
    farheap.validate();
  }
  farheap.validate();
  static_cast<void>(farheap.evacuate(0));
  EXPECT_GT(farheap.statistics().evacuated_objects, 0u);
  farheap.validate();
}

TEST_P(page_lost_test, lost_owners_of_others_can_be_destroyed) {
  runtime farheap(options());
  unique_ptr<branch> tree = grow(farheap, 12);
  {
    const failing_reads now(farheap);
    EXPECT_THROW(
        {
          const scope here(farheap);
          static_cast<void>(tree.deref(here));
        },
        page_lost);
  }
  tree.reset();
  EXPECT_EQ(tree, nullptr);
  EXPECT_EQ(farheap.statistics().abandoned_objects, 1u);
  std::vector<unique_ptr<branch>> others;
  for (int i = 0; i < 20; ++i) others.push_back(grow(farheap, 8));
  static_cast<void>(farheap.evacuate());
  farheap.validate();
  others.clear();
  farheap.validate();
}

TEST_P(page_lost_test, an_open_segment_may_be_lost) {
  runtime farheap(options());
  std::vector<unique_ptr<numbers>> all;
  for (std::uint64_t i = 0; i < 5; ++i) all.push_back(make_unique<numbers>(farheap, numbers{i}));
  const failing_reads now(farheap);
  for (std::uint64_t i = 5; i < 20; ++i) all.push_back(make_unique<numbers>(farheap, numbers{i}));
  std::size_t lost = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    lost += detail::unless_lost([&] { EXPECT_EQ(all[i].read().first, i); }) ? 0 : 1;
  }
  EXPECT_EQ(lost, 5u);
  farheap.validate();
}

// Its patience is short here, so that a place that is waited for is lost soon.
void take_away_for_a_moment() {
  heap::failing_tier().set_error_code(ETIMEDOUT);
  heap::failing_tier().set_read_patience_ns(100'000'000);
}

TEST_P(page_lost_test, new_objects_wait_for_no_tier_that_is_away) {
  for (const bool is_known : {false, true}) {
    runtime farheap(options());
    take_away_for_a_moment();
    std::vector<unique_ptr<numbers>> all;
    for (std::uint64_t i = 0; i < 5; ++i) all.push_back(make_unique<numbers>(farheap, numbers{i}));
    {
      const failing_reads now(farheap);
      if (is_known) heap::failing_tier().set_away_since_ns(platform::monotonic_clock().now_ns());
      for (std::uint64_t i = 5; i < 200; ++i) all.push_back(make_unique<numbers>(farheap, numbers{i}));
      for (std::uint64_t i = 5; i < 200; ++i) EXPECT_EQ(all[i].read().first, i);
    }
    for (std::uint64_t i = 0; i < 200; ++i) EXPECT_EQ(all[i].read().first, i) << "the tier is back";
    EXPECT_EQ(farheap.statistics().lost_pages, 0u);
    farheap.validate();
  }
}

TEST_P(page_lost_test, new_plain_memory_waits_for_no_tier_that_is_away) {
  runtime farheap(options());
  take_away_for_a_moment();
  memory_resource far_memory(farheap);
  std::vector<std::uint64_t*> all;
  const auto add = [&] {
    all.push_back(static_cast<std::uint64_t*>(far_memory.allocate(64)));
    *all.back() = all.size();
  };
  for (int i = 0; i < 5; ++i) add();
  {
    const failing_reads now(farheap);
    for (int i = 0; i < 200; ++i) add();
    farheap.validate();
  }
  for (std::uint64_t i = 0; i < all.size(); ++i) EXPECT_EQ(*all[i], i + 1);
  EXPECT_EQ(farheap.statistics().lost_pages, 0u);
  for (std::uint64_t* const one : all) far_memory.deallocate(one, 64);
  farheap.validate();
}

struct counted {
  static inline std::atomic<int> living{0};
  std::uint64_t value = 7;
  counted() { ++living; }
  ~counted() { --living; }
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;
};
// Its end is beyond what a dereference brings in. Whole pages, so that one lost page is one lost element of an array.
struct counted_at_both_ends {
  counted first;
  std::array<std::byte, 50 * page_bytes - 2 * sizeof(counted)> between{};
  counted last;
};

}  // namespace

template <>
inline constexpr bool is_relocatable<counted> = true;
template <>
inline constexpr bool is_relocatable<counted_at_both_ends> = true;

namespace {

TEST_P(page_lost_test, of_a_large_array_only_lost_elements_are_not_destroyed) {
  runtime farheap(options());
  constexpr std::size_t a_page = page_bytes / sizeof(counted);
  counted::living = 0;
  auto all = make_unique<counted[]>(farheap, 100 * a_page);
  ASSERT_EQ(counted::living, static_cast<int>(100 * a_page));
  {
    const failing_reads now(farheap);
    const scope here(farheap);
    EXPECT_THROW(static_cast<void>(all.deref(here, 50 * a_page)), page_lost);
  }
  EXPECT_EQ(farheap.statistics().lost_pages, 1u);
  all.reset();
  EXPECT_EQ(counted::living, static_cast<int>(a_page));
  farheap.validate();
}

TEST_P(page_lost_test, a_large_object_whose_end_is_lost_is_not_destroyed) {
  runtime farheap(options());
  counted::living = 0;
  shared_ptr<counted_at_both_ends> lost = make_shared<counted_at_both_ends>(farheap);
  auto other = make_unique<counted_at_both_ends>(farheap);
  ASSERT_EQ(counted::living, 4);
  {
    const failing_reads now(farheap);
    const scope here(farheap);
    EXPECT_THROW(static_cast<void>(shared_ptr<counted>(lost, &counted_at_both_ends::last).deref(here)), page_lost);
  }
  other.reset();
  EXPECT_EQ(counted::living, 2);
  lost.reset();
  EXPECT_EQ(counted::living, 2);
  farheap.validate();
}

TEST_P(page_lost_test, of_an_array_of_large_objects_those_whose_end_is_lost_are_not_destroyed) {
  runtime farheap(options());
  counted::living = 0;
  shared_ptr<counted_at_both_ends[]> all = make_shared<counted_at_both_ends[]>(farheap, 3);
  ASSERT_EQ(counted::living, 6);
  {
    const failing_reads now(farheap);
    const scope here(farheap);
    const shared_ptr<counted_at_both_ends> second(all, 1);
    EXPECT_THROW(static_cast<void>(shared_ptr<counted>(second, &counted_at_both_ends::last).deref(here)), page_lost);
  }
  all.reset();
  EXPECT_EQ(counted::living, 2);
  farheap.validate();
}

// Exceptions are caught while others are, and fibers change threads meanwhile.
TEST_P(page_lost_test, fibers_catch_it_and_tasks_hand_it_on) {
  runtime farheap(options());
  std::vector<unique_ptr<numbers>> all;
  for (std::uint64_t i = 0; i < 400; ++i) all.push_back(make_unique<numbers>(farheap, numbers{i}));
  auto kept = make_unique<numbers>(farheap, numbers{77});
  static_cast<void>(kept.read());
  const failing_reads now(farheap);
  std::vector<task<void>> running;
  std::atomic<std::size_t> caught{0};
  for (std::size_t i = 0; i < all.size(); ++i) {
    running.push_back(farheap.spawn([&, i] {
      try {
        static_cast<void>(all[i].read());
      } catch (const page_lost&) {
        EXPECT_FALSE(detail::unless_lost([&] { static_cast<void>(all[all.size() - 1 - i].read()); }));
        ++caught;
        throw;
      }
    }));
  }
  for (task<void>& one : running) EXPECT_THROW(one.join(), page_lost);
  EXPECT_EQ(caught, all.size());
  EXPECT_THROW(farheap.run([&] { return all.front().read().first; }), page_lost);
  farheap.validate();
}

INSTANTIATE_TEST_SUITE_P(paths, page_lost_test, ::testing::Values(2.0, 0.0));

using row = std::vector<std::uint64_t, allocator<std::uint64_t>>;

runtime_options with_guard(runtime_options::guard how) {
  runtime_options chosen = heap::small_runtime();
  chosen.hardware_guard = how;
  return chosen;
}

TEST_P(lost_memory_test, ends_the_process_without_a_handler) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        runtime farheap(with_guard(GetParam()));
        row values(100'000, 7, farheap);
        const failing_reads now(farheap);
        EXPECT_EQ(values[50'000], 7u);
      },
      "the program needs the bytes at .* and they are lost");
}

TEST_P(lost_memory_test, goes_on_with_zeros_where_a_handler_says_so) {
  runtime_options chosen = with_guard(GetParam());
  std::atomic<const void*> asked{nullptr};
  std::atomic<int> times{0};
  chosen.goes_on_without = [&](const void* page) {
    asked = page;
    ++times;
    return true;
  };
  runtime farheap(chosen);
  row values(100'000, 7, farheap);
  auto one = make_unique<numbers>(farheap, numbers{5});
  {
    const failing_reads now(farheap);
    EXPECT_EQ(values[50'000], 0u);
    const auto at = reinterpret_cast<std::uintptr_t>(&values[50'000]);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(asked.load()), at - at % page_bytes);
    EXPECT_THROW(static_cast<void>(one.read()), page_lost) << "a software guard asks nobody";
  }
  EXPECT_EQ(times, 1);
  values[50'000] = 8;
  EXPECT_EQ(values[50'000], 8u);
  EXPECT_EQ(values[0], 7u);
  EXPECT_EQ(values[99'999], 7u);
  farheap.validate();
}

INSTANTIATE_TEST_SUITE_P(guards, lost_memory_test,
                         ::testing::Values(runtime_options::guard::thread, runtime_options::guard::in_line));

}  // namespace
}  // namespace far
