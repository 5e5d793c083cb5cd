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
