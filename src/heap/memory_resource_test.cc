// far::memory_resource and far::allocator. Needs permission for userfaultfd.
#include "far/memory_resource.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <new>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/runtime.h"
#include "far/tag.h"
#include "far/unique_ptr.h"
#include "heap/heap.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

class memory_resource_test : public heap::real_pager_test<::testing::TestWithParam<runtime_options::guard>> {
 protected:
  [[nodiscard]] static runtime_options small() {
    runtime_options chosen;
    chosen.local_bytes = 16 * mib;
    chosen.workers = 2;
    chosen.hardware_guard = GetParam();
    return chosen;
  }
};

TEST_P(memory_resource_test, holds_containers_of_three_times_the_budget) {
  runtime farheap(small());
  memory_resource far_memory(farheap);
  {
    std::pmr::unordered_map<std::uint64_t, std::pmr::string> names(&far_memory);
    const auto name_of = [](std::uint64_t i) { return std::string(40 + i % 100, static_cast<char>('a' + i % 26)); };
    constexpr std::uint64_t count = 250'000;
    for (std::uint64_t i = 0; i < count; ++i) names.emplace(i, name_of(i));
    std::size_t wrong = 0;
    for (std::uint64_t i = 0; i < count; i += 37) wrong += std::string_view(names.at(i)) == name_of(i) ? 0 : 1;
    EXPECT_EQ(wrong, 0u);
    EXPECT_GT(farheap.statistics().far_bytes, 16 * mib);
    EXPECT_LE(farheap.statistics().local_bytes, 16 * mib);
    farheap.validate();
    for (std::uint64_t i = 0; i < count; i += 2) names.erase(i);
    for (std::uint64_t i = 1; i < count; i += 74) wrong += std::string_view(names.at(i)) == name_of(i) ? 0 : 1;
    EXPECT_EQ(wrong, 0u);
  }
  farheap.validate();
}

TEST_P(memory_resource_test, allocator_serves_vectors) {
  runtime farheap(small());
  const tag rows(farheap, {.hotness_bits = 2});
  std::vector<std::uint64_t, allocator<std::uint64_t>> numbers(rows);
  for (std::uint64_t i = 0; i < 4'000'000; ++i) numbers.push_back(i * 31);
  std::size_t wrong = 0;
  for (std::uint64_t i = 0; i < numbers.size(); ++i) wrong += numbers[i] == i * 31 ? 0 : 1;
  EXPECT_EQ(wrong, 0u);
  std::vector<std::uint64_t, allocator<std::uint64_t>> taken(farheap);
  taken = std::move(numbers);
  EXPECT_EQ(taken[3'999'999], 3'999'999u * 31);
  EXPECT_TRUE(allocator<int>(farheap) == allocator<char>(rows));
}

TEST_P(memory_resource_test, small_allocations_share_pages) {
  runtime farheap(small());
  memory_resource far_memory(farheap);
  constexpr std::size_t count = 25'600;  // of 16 bytes: 100 pages
  std::vector<void*> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(far_memory.allocate(10, 8));
  EXPECT_LE(farheap.statistics().local_bytes, 2 * mib);
  std::vector<std::uintptr_t> pages;
  for (void* one : all) pages.push_back(reinterpret_cast<std::uintptr_t>(one) / page_bytes);
  std::ranges::sort(pages);
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  EXPECT_LE(pages.size(), 101u);
  for (void* one : all) far_memory.deallocate(one, 10, 8);
  farheap.validate();
}

struct allocation {
  unsigned char* at;
  std::size_t bytes;
  std::size_t alignment;
};

// Every size and alignment, held, given back and checked in any order.
void use_at_random(runtime& farheap, std::uint64_t seed) {
  memory_resource far_memory(farheap);
  std::mt19937_64 random(seed);
  std::vector<allocation> all;
  std::size_t wrong = 0;
  const auto content = [](const allocation& one) {
    return static_cast<unsigned char>(reinterpret_cast<std::uintptr_t>(one.at) / 16 * 31 + one.bytes);
  };
  const auto give_back = [&](std::size_t index) {
    const allocation one = all[index];
    wrong += static_cast<std::size_t>(std::count(one.at, one.at + one.bytes, content(one))) == one.bytes ? 0 : 1;
    far_memory.deallocate(one.at, one.bytes, one.alignment);
    all[index] = all.back();
    all.pop_back();
  };
  for (unsigned i = 0; i < 20'000; ++i) {
    if (all.size() > 2000 || (!all.empty() && random() % 3 == 0)) {
      give_back(random() % all.size());
      continue;
    }
    allocation one{nullptr, 1 + random() % (std::size_t{1} << (3 + random() % 13)), std::size_t{1} << random() % 13};
    one.at = static_cast<unsigned char*>(far_memory.allocate(one.bytes, one.alignment));
    wrong += reinterpret_cast<std::uintptr_t>(one.at) % one.alignment;
    std::memset(one.at, content(one), one.bytes);
    all.push_back(one);
  }
  while (!all.empty()) give_back(all.size() - 1);
  EXPECT_EQ(wrong, 0u);
}

TEST_P(memory_resource_test, gives_room_of_any_size_and_alignment_to_many) {
  runtime farheap(small());
  std::thread other([&] { use_at_random(farheap, 1); });
  task<> on_fiber = farheap.spawn([&] { use_at_random(farheap, 2); });
  farheap.run([&] { use_at_random(farheap, 3); });
  on_fiber.join();
  other.join();
  farheap.validate();
}

TEST_P(memory_resource_test, room_that_was_given_back_is_used_again) {
  runtime farheap(small());
  memory_resource far_memory(farheap);
  // Far more than there are addresses for, if it were not.
  std::uintptr_t highest = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<void*> all;
    for (int i = 0; i < 3000; ++i) all.push_back(far_memory.allocate(1000));
    highest = std::max(highest, reinterpret_cast<std::uintptr_t>(*std::ranges::max_element(all)));
    EXPECT_LE(highest - reinterpret_cast<std::uintptr_t>(*std::ranges::min_element(all)), 8 * mib);
    for (void* one : all) far_memory.deallocate(one, 1000);
  }
  farheap.validate();
}

TEST_P(memory_resource_test, equal_are_those_of_one_runtime) {
  runtime farheap(small());
  const memory_resource one(farheap);
  const memory_resource tagged(tag(farheap, {}));
  EXPECT_TRUE(one == tagged);
  EXPECT_FALSE(one == *std::pmr::new_delete_resource());
  memory_resource fresh(farheap);
  EXPECT_THROW(static_cast<void>(fresh.allocate(1, 8192)), std::bad_alloc);
}

// Takes memory whose pages are leaving, and counts in it until they have left.
void count_in_leaving_pages(const runtime_options& chosen) {
  runtime farheap(chosen);
  memory_resource far_memory(farheap);
  std::atomic<bool> is_leaving{false};
  std::atomic<bool> goes_on{false};
  // The evictor stops here between finding out that nobody can write to the pages and copying them.
  const tag watched(farheap, {}, [&](std::span<std::byte> /*object*/) {
    is_leaving = true;
    for (int i = 0; i < 30 && !goes_on; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  const auto object = make_unique<std::uint64_t>(watched, 1u);
  constexpr std::size_t pages = 5;
  auto* const first = static_cast<std::byte*>(far_memory.allocate(pages * page_bytes));
  for (const std::size_t written : {0, 1, 3}) first[written * page_bytes] = std::byte{1};
  std::byte* const behind = first + pages * page_bytes;
  // One that is to be fetched, so that taking it waits for nobody.
  make_unique<char[]>(farheap, page_bytes).reset();
  ASSERT_TRUE(detail::heap_of(farheap).memory.is_resident(reinterpret_cast<std::uintptr_t>(behind + page_bytes)));

  std::atomic<bool> has_left{false};
  std::thread evictor([&] {
    farheap.evict_all();
    has_left = true;
  });
  while (!is_leaving) std::this_thread::yield();
  auto* const taken = static_cast<std::byte*>(far_memory.allocate(3 * page_bytes));
  ASSERT_EQ(taken, behind);
  auto* const number = reinterpret_cast<volatile std::uint64_t*>(taken + page_bytes);
  std::uint64_t model = 0;
  while (!has_left || model < 1'000) {
    *number = *number + 1;
    if (++model == 500) goes_on = true;
  }
  evictor.join();
  EXPECT_EQ(*number, model);
  far_memory.deallocate(taken, 3 * page_bytes);
  far_memory.deallocate(first, pages * page_bytes);
}

// Zeros are put ahead of a walk of writes, also behind the memory that is being written. Nobody has these pages, so
// they leave as those that nobody can write to.
TEST_P(memory_resource_test, what_is_written_to_memory_whose_pages_were_leaving_is_kept) {
  for (int round = 0; round < 10; ++round) count_in_leaving_pages(small());
}

INSTANTIATE_TEST_SUITE_P(guards, memory_resource_test,
                         ::testing::Values(runtime_options::guard::thread, runtime_options::guard::in_line),
                         [](const auto& chosen) {
                           return chosen.param == runtime_options::guard::thread ? "thread" : "in_line";
                         });

}  // namespace
}  // namespace far
