#include "preload/default_tier.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace far::preload {
namespace {

constexpr platform::system_memory machine{16 * gib, 12 * gib, std::nullopt};
constexpr platform::system_memory container{16 * gib, 1 * gib, 1 * gib};

std::string uri(const platform::system_memory& memory, std::uint64_t budget_bytes) {
  return default_far_uri_for({.memory = memory, .budget_bytes = budget_bytes});
}

TEST(default_tier, compressed_memory_over_the_disk) {
  EXPECT_EQ(uri(machine, 2 * gib), "zmem:4096M?leave=2048M,file:");
}

TEST(default_tier, takes_half_of_what_the_machine_can_spare) {
  EXPECT_EQ(uri(machine, 8 * gib), "zmem:1024M?leave=2048M,file:");
  EXPECT_EQ(uri(container, 512 * mib), "zmem:192M?leave=128M,file:");
  EXPECT_EQ(uri({256 * gib, 200 * gib, std::nullopt}, 100 * gib), "zmem:49152M?leave=4096M,file:");
}

TEST(default_tier, only_the_disk_where_memory_is_short) {
  EXPECT_EQ(uri(machine, 10 * gib), "file:");
  EXPECT_EQ(uri(machine, 14 * gib), "file:");
  EXPECT_EQ(uri(machine, 10 * gib - 32 * mib), "zmem:16M?leave=2048M,file:");
  EXPECT_EQ(uri(container, 1 * gib), "file:");
}

TEST(default_tier, only_the_disk_under_a_limit_on_data) {
  EXPECT_EQ(default_far_uri_for({.memory = machine, .budget_bytes = 2 * gib, .data_is_limited = true}), "file:");
}

TEST(default_tier, only_the_disk_for_a_process_that_limits_its_data) {
  const tier_circumstances unlimited{.memory = machine, .budget_bytes = 2 * gib};
  EXPECT_EQ(default_far_uri_under_limit(unlimited), "file:");
  EXPECT_NE(default_far_uri_for(unlimited), "file:");
}

TEST(default_tier, compressed_memory_alone_where_files_are_in_ram) {
  EXPECT_EQ(default_far_uri_for({.memory = machine, .budget_bytes = 2 * gib, .files_in_ram = true}), "zmem:");
}

}  // namespace
}  // namespace far::preload
