#include "platform/heap_layout.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace far::platform {
namespace {

constexpr std::uint64_t block_bytes = heap_layout::alignment_bytes;
constexpr page_id block_pages = block_bytes >> page_shift;

std::byte* at(std::uintptr_t address) {
  return reinterpret_cast<std::byte*>(address);
}

TEST(HeapLayout, TheReservedRangeAlone) {
  const heap_layout heap(at(64 * block_bytes), 16 * block_bytes);
  EXPECT_EQ(heap.pages(), 16 * block_pages);
  EXPECT_TRUE(heap.contains(at(64 * block_bytes)));
  EXPECT_FALSE(heap.contains(at(64 * block_bytes - 1)));
  EXPECT_FALSE(heap.contains(at(80 * block_bytes)));
  EXPECT_EQ(heap.page_at(at(64 * block_bytes + page_bytes + 1)), 1u);
  EXPECT_EQ(heap.address_of(block_pages), at(65 * block_bytes));
}

// Static ranges lie below and above the heap, in no order.
TEST(HeapLayout, StaticRangesKeepTheirPlaces) {
  heap_layout heap(at(64 * block_bytes), 16 * block_bytes);
  const std::span<std::byte> ranges[] = {{at(100 * block_bytes), 3 * block_bytes}, {at(2 * block_bytes), block_bytes}};
  for (const std::span<std::byte> range : ranges) heap.add_static_range(range);
  ASSERT_EQ(heap.static_ranges(), 2u);
  EXPECT_EQ(heap.bytes(), 16 * block_bytes);
  page_id end_before = 16 * block_pages;
  for (std::size_t i = 0; i < 2; ++i) {
    const page_range pages = heap.static_pages(i);
    EXPECT_EQ(pages.count, ranges[i].size() >> page_shift);
    EXPECT_EQ(pages.first % block_pages, 0u);
    EXPECT_GT(pages.first, end_before) << "a run would go from one range into the next";
    end_before = pages.end();
    for (page_id page = pages.first; page < pages.end(); ++page) {
      std::byte* const address = ranges[i].data() + ((page - pages.first) << page_shift);
      EXPECT_TRUE(heap.contains(address));
      EXPECT_EQ(heap.page_at(address + page_bytes - 1), page);
      EXPECT_EQ(heap.address_of(page), address);
    }
    EXPECT_FALSE(heap.contains(ranges[i].data() - 1));
    EXPECT_FALSE(heap.contains(ranges[i].data() + ranges[i].size()));
  }
  EXPECT_EQ(heap.pages(), end_before);
  EXPECT_EQ(heap.page_at(at(64 * block_bytes + page_bytes)), 1u);
}

}  // namespace
}  // namespace far::platform
