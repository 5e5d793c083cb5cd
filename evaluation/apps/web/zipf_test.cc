#include "zipf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace web {
namespace {

// How often each rank should come, and comes, must agree within six standard deviations.
void expect_distribution(std::uint64_t count, double exponent) {
  constexpr unsigned draws = 400'000;
  const zipf ranks(count, exponent);
  apps::random_words random(count);
  std::vector<double> seen(count);
  for (unsigned i = 0; i < draws; ++i) {
    const std::uint64_t rank = ranks.draw(random);
    ASSERT_LT(rank, count);
    ++seen[rank];
  }
  double total = 0;
  for (std::uint64_t r = 0; r < count; ++r) total += std::pow(static_cast<double>(r + 1), -exponent);
  for (std::uint64_t r = 0; r < count; ++r) {
    const double share = std::pow(static_cast<double>(r + 1), -exponent) / total;
    const double deviation = std::sqrt(draws * share * (1 - share));
    EXPECT_NEAR(seen[r], draws * share, 6 * deviation + 1e-9) << "rank " << r << " of " << count << ", s=" << exponent;
  }
}

TEST(zipf, follows_its_law) {
  for (const double exponent : {0.0, 0.5, 0.8, 0.99, 1.0, 1.2, 3.0}) {
    for (const std::uint64_t count : {1u, 2u, 3u, 100u}) expect_distribution(count, exponent);
  }
}

TEST(zipf, stays_within_large_bounds) {
  constexpr std::uint64_t count = std::uint64_t{1} << 40;
  const zipf ranks(count, 0.8);
  apps::random_words random(1);
  std::uint64_t beyond_half = 0;
  for (unsigned i = 0; i < 100'000; ++i) {
    const std::uint64_t rank = ranks.draw(random);
    ASSERT_LT(rank, count);
    beyond_half += rank >= count / 2;
  }
  // 1 - 0.5^0.2 of the mass, 13%, lies there; a generator that loses the tail has none.
  EXPECT_NEAR(static_cast<double>(beyond_half), 12'945, 700);
}

}  // namespace
}  // namespace web
