#include "engine/block.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace far::engine {
namespace {

std::vector<block_id> used(const block_table& blocks) {
  std::vector<block_id> found;
  blocks.for_each_used([&found](block_id id) { found.push_back(id); });
  return found;
}

TEST(block_table, names_the_blocks_that_were_used_in_order_and_each_once) {
  block_table blocks(1000 * block_pages + 1);
  EXPECT_TRUE(used(blocks).empty());
  for (const block_id id : {block_id{1000}, block_id{64}, block_id{0}, block_id{63}, block_id{64}}) {
    blocks.note_use(id);
  }
  EXPECT_EQ(used(blocks), (std::vector<block_id>{0, 63, 64, 1000}));
}

TEST(block_table, threads_lose_no_use) {
  block_table blocks(256 * block_pages);
  std::vector<std::thread> threads;
  for (block_id first = 0; first < 4; ++first) {
    threads.emplace_back([&blocks, first] {
      for (block_id id = first; id < 256; id += 4) blocks.note_use(id);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(used(blocks).size(), 256u);
}

TEST(allocation_bits, know_how_many_pages_are_allocated_in_a_row) {
  allocation_bits bits;
  bits.add(60, 10);
  bits.add(200, 312);
  EXPECT_EQ(bits.count(), 322u);
  EXPECT_EQ(bits.run_from(60, 512), 10u);
  EXPECT_EQ(bits.run_from(63, 512), 7u);
  EXPECT_EQ(bits.run_from(60, 4), 4u);
  EXPECT_EQ(bits.run_from(70, 512), 0u);
  EXPECT_EQ(bits.run_from(200, 512), 312u);
  EXPECT_EQ(bits.run_from(511, 512), 1u);
  EXPECT_EQ(bits.run_from(512, 512), 0u);
  bits.remove(256, 64);
  EXPECT_EQ(bits.run_from(200, 512), 56u);
  EXPECT_EQ(bits.run_from(256, 512), 0u);
  EXPECT_EQ(bits.count(), 258u);
  allocation_bits whole;
  whole.add(0, block_pages);
  EXPECT_EQ(whole.run_from(0, block_pages), block_pages);
  whole.remove(0, block_pages);
  EXPECT_EQ(whole.count(), 0u);
}

TEST(allocation_bits, notice_what_is_allocated_or_freed_twice) {
  allocation_bits bits;
  bits.add(10, 5);
  EXPECT_DEATH(bits.add(14, 2), "allocated once");
  EXPECT_DEATH(bits.remove(9, 2), "freed once");
}

// The child of a fork fills every page that it looks at.
TEST(block_table, looks_at_no_block_that_was_never_used) {
  constexpr std::uint64_t count = 1 << 18;
  block_table blocks(count * block_pages);
  blocks.note_use(0);
  blocks.note_use(count - 1);
  blocks.for_each_used([&blocks](block_id id) { static_cast<void>(blocks.at(id).lock.try_lock()); });
  std::vector<unsigned char> filled(pages_for(count * sizeof(block)));
  ASSERT_EQ(mincore(&blocks.at(0), count * sizeof(block), filled.data()), 0);
  EXPECT_EQ(std::count(filled.begin(), filled.end(), 1), 2);
}

}  // namespace
}  // namespace far::engine
