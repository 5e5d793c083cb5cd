#include "platform/local_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/units.h"
#include "platform/program_limits.h"

namespace far::platform {
namespace {

TEST(local_memory, is_zeroed_and_can_give_its_frames_back) {
  std::byte* const block = map_local(3 * page_bytes);
  EXPECT_EQ(block[2 * page_bytes], std::byte{0});
  std::memset(block, 0x5a, 3 * page_bytes);
  release_local_frames(block, page_bytes);
  EXPECT_EQ(block[0], std::byte{0});
  EXPECT_EQ(block[page_bytes], std::byte{0x5a});
  unmap_local(block, 3 * page_bytes);
}

TEST(local_memory, is_writable_in_a_part_of_a_sparse_mapping) {
  constexpr std::size_t bytes = 32 * gib;
  constexpr std::size_t within_a_page = 100;
  std::byte* const whole = try_map_sparse(bytes, gib + within_a_page, 3 * page_bytes);
  ASSERT_NE(whole, nullptr);
  std::memset(whole + gib + within_a_page, 0x5a, 3 * page_bytes);
  EXPECT_EQ(whole[gib - 1], std::byte{0});
  EXPECT_EQ(whole[gib + within_a_page + 3 * page_bytes], std::byte{0});
  EXPECT_EQ(whole[bytes - 1], std::byte{0});
  EXPECT_EQ(next_own_mapping(reinterpret_cast<std::uintptr_t>(whole)).first, reinterpret_cast<std::uintptr_t>(whole))
      << "it must not be locked in memory";
  unmap_local(whole, bytes);
}

TEST(local_memory, refuses_the_impossible) {
  EXPECT_EQ(try_map_local(std::size_t{1} << 60), nullptr);
}

TEST(local_memory, blocks_of_every_size_do_not_overlap) {
  std::vector<std::pair<unsigned char*, std::size_t>> blocks;
  for (std::size_t bytes = 1; bytes <= 128 * kib; bytes = bytes * 3 / 2 + 1) {
    for (int copy = 0; copy < 3; ++copy) {
      auto* const block = static_cast<unsigned char*>(allocate_local(bytes));
      std::memset(block, static_cast<int>(blocks.size()), bytes);
      blocks.emplace_back(block, bytes);
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i].first[0], static_cast<unsigned char>(i));
    EXPECT_EQ(blocks[i].first[blocks[i].second - 1], static_cast<unsigned char>(i));
    free_local(blocks[i].first, blocks[i].second);
  }
}

TEST(local_memory, serves_containers_of_several_threads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int round = 0; round < 200; ++round) {
        std::vector<int, local_allocator<int>> numbers;
        for (int i = 0; i < 500; ++i) numbers.push_back(t * 1000 + i);
        for (int i = 0; i < 500; ++i) ASSERT_EQ(numbers[static_cast<std::size_t>(i)], t * 1000 + i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(local_memory, what_its_user_unmaps_counts_until_it_is_forgotten) {
  constexpr std::size_t bytes = 64 * kib;
  const own_memory before = noted_own_memory();
  std::byte* const stack = map_local(bytes);
  EXPECT_EQ(noted_own_memory().address_bytes, before.address_bytes + static_cast<std::int64_t>(bytes));
  ASSERT_TRUE(forget_local(stack, bytes));
  EXPECT_EQ(noted_own_memory().address_bytes, before.address_bytes);
  EXPECT_EQ(noted_own_memory().data_bytes, before.data_bytes);
  EXPECT_EQ(munmap(stack, bytes), 0) << "it is still there";
}

// A block's address tells that it is the runtime's: the program must not get it.
TEST(local_memory, what_came_from_a_region_of_blocks_stays_in_it) {
  constexpr std::size_t bytes = 64 * kib;
  free_local(allocate_local(page_bytes), page_bytes);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  const rlimit none{page_bytes, before.rlim_max};  // not 0, which Linux takes for no limit
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &none), 0);
  std::byte* const taken = map_local(bytes);
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
  if (!is_local_block(taken)) GTEST_SKIP() << "the limit is not enforced here";
  std::memset(taken, 0x5a, bytes);
  EXPECT_FALSE(forget_local(taken, bytes)) << "nobody may unmap it";
  unmap_local(taken, bytes);
  constexpr int free_place = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  EXPECT_EQ(mmap(taken, bytes, PROT_READ | PROT_WRITE, free_place, -1, 0), MAP_FAILED);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(taken[0], std::byte{0}) << "its frames are given back";
}

}  // namespace
}  // namespace far::platform
