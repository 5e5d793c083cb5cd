#include "engine/budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace far::engine {
namespace {

TEST(budget, charges_up_to_the_limit) {
  budget local(1000);
  EXPECT_TRUE(local.try_charge(999));
  EXPECT_TRUE(local.try_charge(1));
  EXPECT_FALSE(local.try_charge(1));
  EXPECT_EQ(local.charged_pages(), 1000u);
  EXPECT_EQ(local.free_pages(), 0);
  local.release(10);
  EXPECT_EQ(local.free_pages(), 10);
  EXPECT_TRUE(local.try_charge(10));
}

TEST(budget, a_reserve_stays_free) {
  budget local(1000);
  EXPECT_FALSE(local.try_charge(901, 100));
  EXPECT_TRUE(local.try_charge(900, 100));
  EXPECT_FALSE(local.try_charge(1, 100));
  EXPECT_TRUE(local.try_charge(100));
}

TEST(budget, a_charge_above_the_limit_ends_at_its_excess) {
  budget local(100);
  local.charge(100);
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(local.try_charge_above(64));
  EXPECT_FALSE(local.try_charge_above(64));
  EXPECT_EQ(local.free_pages(), -64);
}

TEST(budget, an_unconditional_charge_may_exceed_the_limit) {
  budget local(10);
  local.charge(25);
  EXPECT_EQ(local.free_pages(), -15);
  EXPECT_FALSE(local.try_charge(1));
  EXPECT_EQ(local.peak_pages(), 25u);
  local.release(25);
  EXPECT_EQ(local.charged_pages(), 0u);
  EXPECT_EQ(local.peak_pages(), 25u) << "the peak stays";
}

TEST(budget, what_is_set_aside_is_no_frames) {
  budget local(1000);
  local.set_aside(400);
  EXPECT_EQ(local.limit_pages(), 600u);
  EXPECT_EQ(local.whole_pages(), 1000u);
  EXPECT_FALSE(local.try_charge(601));
  EXPECT_TRUE(local.try_charge(600));
  local.resize(600);
  EXPECT_EQ(local.limit_pages(), 300u) << "at least half is for frames";
  EXPECT_EQ(local.aside_pages(), 300u);
  local.resize(2000);
  EXPECT_EQ(local.limit_pages(), 1600u);
  local.set_aside(0);
  EXPECT_EQ(local.free_pages(), 1400);
}

TEST(budget, a_smaller_limit_releases_nothing) {
  budget local(1000);
  ASSERT_TRUE(local.try_charge(1000));
  local.resize(600);
  EXPECT_EQ(local.charged_pages(), 1000u);
  EXPECT_EQ(local.free_pages(), -400);
  EXPECT_TRUE(local.below_low());
  EXPECT_TRUE(local.below_high());
  local.resize(2000);
  EXPECT_EQ(local.free_pages(), 1000);
  EXPECT_FALSE(local.below_high());
}

TEST(budget, watermarks_follow_the_limit_between_their_bounds) {
  EXPECT_EQ(budget(4096).low_watermark_pages(), 128u);
  EXPECT_EQ(budget(400).low_watermark_pages(), 50u) << "most of a tiny budget is for the program";
  EXPECT_EQ(budget(1).low_watermark_pages(), 1u);
  EXPECT_EQ(budget(100 * 1000).low_watermark_pages(), 1000u);
  EXPECT_EQ(budget(std::uint64_t{1} << 30).low_watermark_pages(), 4096u);
  budget local(1024);
  EXPECT_EQ(local.high_watermark_pages(), 256u);
  local.charge(1024 - 256);
  EXPECT_FALSE(local.below_high());
  local.charge(1);
  EXPECT_TRUE(local.below_high());
  EXPECT_FALSE(local.below_low());
  local.charge(128);
  EXPECT_TRUE(local.below_low());
}

TEST(budget, the_low_watermark_may_be_another_share) {
  budget local(1000, 0.05);
  EXPECT_EQ(local.low_watermark_pages(), 50u);
  EXPECT_EQ(local.high_watermark_pages(), 100u);
  local.resize(100'000);
  EXPECT_EQ(local.low_watermark_pages(), 5000u);
  local.resize(3);
  EXPECT_EQ(local.low_watermark_pages(), 1u);
}

TEST(budget_death_test, a_frame_is_released_once) {
  budget local(10);
  local.charge(3);
  EXPECT_DEATH(local.release(4), "released once");
}

TEST(budget, threads_never_exceed_the_limit_together) {
  constexpr std::uint64_t limit = 100;
  constexpr int rounds = 20'000;
  budget local(limit);
  std::vector<std::thread> running;
  for (std::uint64_t pages = 1; pages <= 4; ++pages) {
    running.emplace_back([&local, pages] {
      for (int i = 0; i < rounds; ++i) {
        if (local.try_charge(pages * 10)) local.release(pages * 10);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(local.charged_pages(), 0u);
  EXPECT_LE(local.peak_pages(), limit);
  EXPECT_GE(local.peak_pages(), 40u);
}

}  // namespace
}  // namespace far::engine
