#include "workload.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace far::bench {
namespace {

constexpr std::size_t pages = 64;
constexpr pass_size size{64, 32, 200};

class workload : public testing::Test {
 protected:
  void SetUp() override {
    void* mapped = mmap(nullptr, pages * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    base_ = static_cast<std::byte*>(mapped);
  }
  void TearDown() override { munmap(base_, pages * page_bytes); }

  std::byte* base_ = nullptr;
};

TEST_F(workload, every_pattern_walks_and_counts_its_accesses) {
  patterned_memory memory(base_, pages, size);
  memory.fill();
  for (const unsigned threads : {1u, 2u}) {
    for (const pattern walked : all_patterns) {
      const pass_result pass = memory.walk(walked, threads);
      EXPECT_EQ(pass.accesses, size.accesses(walked)) << name_of(walked);
      EXPECT_GT(pass.elapsed_ns, 0u);
    }
  }
}

TEST_F(workload, stops_at_a_flipped_byte) {
  patterned_memory memory(base_, pages, size);
  memory.fill();
  base_[7 * page_bytes + 3000] ^= std::byte{1};
  EXPECT_DEATH(static_cast<void>(memory.walk(pattern::sequential_read, 1)), "bytes have changed");
}

TEST_F(workload, stops_at_a_page_of_another_place) {
  patterned_memory memory(base_, pages, size);
  memory.fill();
  std::copy_n(base_ + page_bytes, page_bytes, base_);
  EXPECT_DEATH(static_cast<void>(memory.walk(pattern::sequential_read, 1)), "another place");
}

TEST_F(workload, stops_at_a_page_that_lost_its_last_write) {
  patterned_memory memory(base_, pages, size);
  memory.fill();
  std::vector<std::byte> stale(base_, base_ + page_bytes);
  static_cast<void>(memory.walk(pattern::sequential_write, 1));
  std::copy(stale.begin(), stale.end(), base_);
  EXPECT_DEATH(static_cast<void>(memory.walk(pattern::sequential_read, 1)), "lost its last write");
}

TEST_F(workload, stops_at_a_page_of_zeros) {
  patterned_memory memory(base_, pages, size);
  memory.fill();
  std::fill_n(base_ + 5 * page_bytes, page_bytes, std::byte{0});
  EXPECT_DEATH(static_cast<void>(memory.walk(pattern::sequential_write, 1)), "lost|torn|another");
}

}  // namespace
}  // namespace far::bench
