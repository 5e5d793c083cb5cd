#include "trace/access_pattern.h"

#include <gtest/gtest.h>

namespace far::trace {
namespace {

constexpr std::uint64_t somewhere = 1'000'000;

std::uint64_t pseudo_random(std::uint64_t i) {
  i = (i + 1) * 0x9e3779b97f4a7c15;
  i = (i ^ (i >> 29)) * 0xbf58476d1ce4e5b9;
  return (i ^ (i >> 32)) % 900'001;
}

pattern walk_by(std::int64_t distance, unsigned steps) {
  pattern_finder finder;
  for (unsigned i = 0; i < steps; ++i) finder.add(1, somewhere + static_cast<std::uint64_t>(distance * i));
  return finder.find();
}

TEST(access_pattern, a_scan) {
  const pattern up = walk_by(1, 100);
  EXPECT_EQ(up.kind, pattern_kind::forward);
  EXPECT_EQ(up.fit, 1.0);
  EXPECT_EQ(up.distances, 99u);
  EXPECT_EQ(up.typical_run, 100u);
  EXPECT_EQ(hint_text(up, false), "far_hint(ptr, .read_ahead = 64, .sequential = true);");
  const pattern down = walk_by(-1, 100);
  EXPECT_EQ(down.kind, pattern_kind::backward);
  EXPECT_EQ(hint_text(down, false), "far_hint(ptr, .read_ahead = -64, .sequential = true);");
}

TEST(access_pattern, a_scan_with_gaps_that_the_pager_read_ahead) {
  pattern_finder finder;
  std::uint64_t page = somewhere;
  for (const unsigned gap : {1, 2, 4, 8, 16, 16, 8, 16, 12, 16}) finder.add(1, page += gap);
  EXPECT_EQ(finder.find().kind, pattern_kind::forward);
}

TEST(access_pattern, a_stride) {
  for (const std::int64_t stride : {7, -7, 1000, -1000}) {
    const pattern seen = walk_by(stride, 50);
    EXPECT_EQ(seen.kind, pattern_kind::stride) << stride;
    EXPECT_EQ(seen.stride, stride);
    EXPECT_EQ(hint_text(seen, false), "far_hint(next);");
  }
}

TEST(access_pattern, random_access_gets_a_plain_hint) {
  pattern_finder finder;
  for (unsigned i = 0; i < 500; ++i) finder.add(1, pseudo_random(i));
  EXPECT_EQ(finder.find().kind, pattern_kind::random);
  EXPECT_GT(finder.find().fit, 0.9);
  EXPECT_EQ(hint_text(finder.find(), false), "far_hint(ptr);");
  EXPECT_EQ(hint_text(finder.find(), true), "far_hint(ptr, .mutate = true);");
}

TEST(access_pattern, the_share_that_fits) {
  pattern_finder finder;
  std::uint64_t page = somewhere;
  for (unsigned i = 0; i <= 100; ++i) finder.add(1, page += i % 4 == 0 ? 5000 + i : 1);
  EXPECT_EQ(finder.find().kind, pattern_kind::forward);
  EXPECT_NEAR(finder.find().fit, 0.75, 0.02);
}

TEST(access_pattern, walks_side_by_side_do_not_look_random) {
  pattern_finder finder;
  for (unsigned i = 0; i < 100; ++i) {
    finder.add(1, somewhere + i);
    finder.add(2, 9 * somewhere - i);
    finder.add(3, 5 * somewhere + i);
  }
  EXPECT_EQ(finder.find().kind, pattern_kind::forward);
  EXPECT_NEAR(finder.find().fit, 2.0 / 3, 0.01);
}

TEST(access_pattern, read_ahead_follows_the_runs) {
  pattern_finder finder;
  // Runs of 10 pages, and a jump after each.
  for (unsigned run = 0; run < 40; ++run) {
    for (unsigned i = 0; i < 10; ++i) finder.add(1, pseudo_random(run) * 100 + i);
  }
  const pattern seen = finder.find();
  EXPECT_EQ(seen.kind, pattern_kind::forward);
  EXPECT_EQ(seen.typical_run, 10u);
  EXPECT_EQ(hint_text(seen, true), "far_hint(ptr, .mutate = true, .read_ahead = 8, .sequential = true);");
}

TEST(access_pattern, the_same_page_again_says_nothing) {
  pattern_finder finder;
  for (unsigned i = 0; i < 40; ++i) finder.add(1, somewhere + i / 2);
  EXPECT_EQ(finder.find().distances, 19u);
  EXPECT_EQ(finder.find().kind, pattern_kind::forward);
}

TEST(access_pattern, a_handful_says_nothing) {
  EXPECT_EQ(walk_by(1, 4).kind, pattern_kind::unknown);
  EXPECT_EQ(walk_by(1, 5).kind, pattern_kind::forward);
  EXPECT_EQ(pattern_finder().find().kind, pattern_kind::unknown);
}

}  // namespace
}  // namespace far::trace
