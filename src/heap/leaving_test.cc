// Handlers that are called before objects leave local memory. Needs permission for userfaultfd.
#include "heap/leaving.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include "base/units.h"
#include "far/memory_resource.h"
#include "far/runtime.h"
#include "far/tag.h"
#include "far/unique_ptr.h"
#include "heap/segments.h"
#include "tests/support/eventually.h"
#include "tests/support/leaving_stress.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

using leaving_test = heap::real_pager_test<>;

struct entry {
  std::uint64_t key = 0;
  std::uint64_t times_left = 0;
};

TEST_F(leaving_test, a_handler_changes_objects_and_drops_index_entries) {
  for (const double page_path_share : {2.0, 0.0}) {
    runtime_options chosen = heap::small_runtime();
    chosen.page_path_share = page_path_share;
    runtime farheap(chosen);
    std::mutex lock;
    std::map<std::uint64_t, bool> index;
    const tag entries(farheap, {}, before_leaving<entry>([&](entry& one) {
                        const std::lock_guard guard(lock);
                        index.erase(one.key);
                        ++one.times_left;
                      }));
    std::vector<unique_ptr<entry>> all;
    std::vector<unique_ptr<entry>> without;
    for (std::uint64_t i = 0; i < 5000; ++i) {
      all.push_back(make_unique<entry>(entries, entry{.key = i}));
      without.push_back(make_unique<entry>(farheap, entry{.key = i}));
      const std::lock_guard guard(lock);
      index.emplace(i, true);
    }
    farheap.evict_all();
    EXPECT_EQ(index.size(), 0u);
    EXPECT_EQ(farheap.statistics().handled_objects, 5000u);
    for (std::uint64_t i = 0; i < 5000; ++i) {
      EXPECT_EQ(all[i].read().key, i);
      EXPECT_EQ(all[i].read().times_left, 1u);
      EXPECT_EQ(without[i].read().times_left, 0u);
    }
    // They were only read since: the handler's writes are kept all the same.
    farheap.evict_all();
    for (std::uint64_t i = 0; i < 5000; ++i) EXPECT_EQ(all[i].read().times_left, 2u);
    farheap.validate();
  }
}

TEST_F(leaving_test, objects_in_use_are_left_alone) {
  runtime farheap(heap::small_runtime());
  const tag entries(farheap, {}, before_leaving<entry>([](entry& one) { ++one.times_left; }));
  unique_ptr<entry> one = make_unique<entry>(entries, entry{.key = 1});
  const scope here(farheap);
  const entry& held = one.deref(here);
  farheap.evict_all();
  EXPECT_EQ(held.times_left, 0u);
  EXPECT_EQ(farheap.statistics().handled_objects, 0u);
}

// Where writes to pages that were only read turned out to be rare, pages come back protected against them.
TEST_F(leaving_test, pages_that_can_be_written_are_handed_over) {
  runtime_options chosen = heap::small_runtime();
  chosen.page_path_share = 0;
  runtime farheap(chosen);
  std::vector<unique_ptr<entry[]>> others;
  for (int i = 0; i < 12'000; ++i) others.push_back(make_unique<entry[]>(farheap, 170));
  const auto read_others = [&] {
    for (auto& one : others) static_cast<void>(one.read(7));
  };
  for (int round = 0; round < 3; ++round) read_others();
  const tag entries(farheap, {}, before_leaving<entry>([](entry& one) { ++one.times_left; }));
  std::vector<unique_ptr<entry>> all;
  for (std::uint64_t i = 0; i < 5000; ++i) all.push_back(make_unique<entry>(entries, entry{.key = i}));
  farheap.evict_all();
  for (std::uint64_t i = 0; i < 5000; ++i) EXPECT_EQ(all[i].read().times_left, 1u);
  farheap.evict_all();
  read_others();  // the handler has written to pages that were only read
  farheap.evict_all();
  // Objects that are only prefetched are not used.
  const std::uint64_t handled = farheap.statistics().handled_objects;
  const std::uint64_t fetched = farheap.statistics().fetched_pages;
  prefetch(std::span<const unique_ptr<entry>>(all));
  while (farheap.statistics().fetched_pages == fetched) std::this_thread::yield();
  farheap.evict_all();
  EXPECT_EQ(farheap.statistics().handled_objects, handled);
  for (std::uint64_t i = 0; i < 5000; ++i) EXPECT_EQ(all[i].read().times_left, 2u);
}

// It is prefetched, and nobody uses it. Its page comes, because there are no addresses for the object alone.
TEST_F(leaving_test, what_comes_with_its_page_for_want_of_a_place_is_handed_over) {
  runtime_options chosen = heap::small_runtime();
  chosen.page_path_share = 2;
  chosen.address_bytes = 192 * mib;
  runtime farheap(chosen);
  std::atomic<std::uint64_t> handled{0};
  const tag entries(farheap, {}, before_leaving<entry>([&](entry&) { ++handled; }));
  const unique_ptr<entry> one = make_unique<entry>(entries, entry{.key = 1});
  std::vector<unique_ptr<std::byte[]>> all_other_addresses;
  EXPECT_THROW(for (;;) all_other_addresses.push_back(make_unique<std::byte[]>(farheap, heap::segment_bytes / 2)),
               std::bad_alloc);
  // Pages that are read turn out not to be written to: from then on they come back protected.
  for (int round = 0; round < 3; ++round) {
    for (const auto& other : all_other_addresses) {
      for (std::size_t at = 0; at < other.size(); at += page_bytes) static_cast<void>(other.read(at));
    }
  }
  farheap.evict_all();
  EXPECT_EQ(handled, 1u);
  const runtime_statistics before = farheap.statistics();
  EXPECT_TRUE(one.prefetch());
  EXPECT_TRUE(eventually([&] { return farheap.statistics().fetched_pages > before.fetched_pages; }));
  farheap.validate();  // the prefetch has ended
  EXPECT_EQ(farheap.statistics().object_fetches, before.object_fetches);
  farheap.evict_all();
  EXPECT_EQ(handled, 2u);
  EXPECT_EQ(one.read().key, 1u);
}

TEST_F(leaving_test, is_given_the_size_of_arrays) {
  runtime farheap(heap::small_runtime());
  std::atomic<std::size_t> bytes{0};
  const tag arrays(farheap, {}, [&](std::span<std::byte> object) { bytes += object.size(); });
  auto small = make_unique<std::uint32_t[]>(arrays, 7);
  auto pointers = make_unique<unique_ptr<int>[]>(arrays, 3);
  auto large = make_unique<std::uint32_t[]>(arrays, 5000);
  large.write(4000, 7);
  farheap.evict_all();
  EXPECT_EQ(bytes, 7 * 4 + 3 * 8u) << "and not of what has pages of its own";
  EXPECT_EQ(large.read(4000), 7u);
}

TEST_F(leaving_test, a_handler_that_uses_far_memory_stops_the_program) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        runtime farheap(heap::small_runtime());
        unique_ptr<entry> other = make_unique<entry>(farheap);
        const tag entries(farheap, {}, before_leaving<entry>([&](entry&) { other.reset(); }));
        const unique_ptr<entry> one = make_unique<entry>(entries);
        farheap.evict_all();
      },
      "the program uses far memory wrongly: .* uses no far memory but the object that it is given");
}

// Each of these may wait for the locks that the handler's caller holds, or for the handler itself.
TEST_F(leaving_test, any_call_of_the_library_in_a_handler_stops_the_program) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto called_by_handler = [](const std::function<void(const tag& in, detail::owner_word& small,
                                                             detail::owner_word& large, void* plain)>& call) {
    runtime farheap(heap::small_runtime());
    memory_resource far_memory(farheap);
    void* const plain = far_memory.allocate(64);
    detail::owner_word small{0};
    detail::owner_word large{0};
    {
      const scope here(farheap);
      static_cast<void>(detail::allocate(farheap, small, 64, nullptr));
    }
    detail::allocate_pages(farheap, large, 2 * page_bytes);
    const tag entries(farheap, {}, before_leaving<entry>([&](entry&) { call(entries, small, large, plain); }));
    const unique_ptr<entry> one = make_unique<entry>(entries);
    farheap.evict_all();
  };
  using word = detail::owner_word;
  const detail::reduction sum;
  const auto count = [](void*, std::size_t, const std::byte*) {};
  std::byte copied[16];
  const auto dies = [&](auto call) { EXPECT_DEATH(called_by_handler(call), "uses no far memory but the object"); };
  dies([](const tag& in, word&, word&, void* plain) { detail::release_plain(in.home(), plain, 64, 16); });
  dies([](const tag& in, word&, word&, void*) { detail::give_way(in); });
  dies([](const tag&, word& small, word&, void*) { static_cast<void>(detail::prefetch(small)); });
  dies([](const tag&, word&, word& large, void*) { detail::prefetch_part(large, 0, page_bytes); });
  dies([](const tag&, word&, word& large, void*) { detail::forget_part(large, 0, page_bytes, true); });
  dies([&](const tag&, word&, word& large, void*) { detail::copy_part(large, 0, sizeof copied, copied); });
  dies([&](const tag&, word&, word& large, void*) {
    detail::answer_part(large, 0, page_bytes, sum, {count, nullptr}, nullptr);
  });
  dies([&](const tag&, word&, word& large, void*) {
    static_cast<void>(detail::reduce_part(large, 0, page_bytes, sum));
  });
  dies([&](const tag& in, word&, word&, void*) { detail::ask_about_rows(in, sum, {}); });
}

// It would wait for the pages that it is called for: those of its thread's open segments, or of far pointers in static
// variables.
TEST_F(leaving_test, a_handler_that_calls_exit_stops_the_program) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exits = [](bool with_static_runtime) {
    static std::unique_ptr<runtime> kept;
    auto farheap = std::make_unique<runtime>(heap::small_runtime());
    runtime& home = *farheap;
    if (with_static_runtime) kept = std::move(farheap);
    const tag entries(home, {}, before_leaving<entry>([](entry&) { std::exit(0); }));
    const unique_ptr<entry> one = make_unique<entry>(entries);
    if (with_static_runtime) {
      std::thread([&] { home.evict_all(); }).join();  // which has no segments
    } else {
      home.evict_all();
    }
  };
  EXPECT_DEATH(exits(false), "does not call exit");
  EXPECT_DEATH(exits(true), "does not call exit");
}

TEST_F(leaving_test, stress) {
  for (const double page_path_share : {2.0, 0.5}) {
    runtime_options chosen = heap::small_runtime();
    chosen.page_path_share = page_path_share;
    stress::run_leaving(chosen, 6 * 27'000, 20'000);
  }
}

}  // namespace
}  // namespace far
