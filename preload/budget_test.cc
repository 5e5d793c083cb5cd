#include "preload/budget.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "base/units.h"
#include "pager/pager.h"

namespace far::preload {
namespace {

constexpr platform::system_memory machine{8 * gib, 6 * gib, std::nullopt};
constexpr platform::system_memory container{8 * gib, 6 * gib, 2 * gib};

TEST(Budget, Sizes) {
  EXPECT_EQ(parse_budget("512M", machine).value(), 512 * mib);
  EXPECT_EQ(parse_budget("1.5G", machine).value(), 1536 * mib);
  EXPECT_EQ(parse_budget("16M", machine).value(), pager::minimum_budget_bytes);
  EXPECT_EQ(parse_budget("33554433", machine).value(), 32 * mib) << "whole pages";
}

TEST(Budget, PercentagesOfWhatIsUsable) {
  EXPECT_EQ(parse_budget("25%", machine).value(), 2 * gib);
  EXPECT_EQ(parse_budget("25%", container).value(), 512 * mib);
  EXPECT_EQ(parse_budget("12.5%", machine).value(), 1 * gib);
  EXPECT_EQ(parse_budget("100%", container).value(), 2 * gib);
}

TEST(Budget, WhatMakesNoSenseIsNamed) {
  for (const char* text :
       {"", "%", "lots", "-5M", "0%", "-1%", "101%", "1e3%", "nan%", "25 %", "2Q", "15M", "2", "0"}) {
    const result<std::uint64_t> got = parse_budget(text, machine);
    ASSERT_FALSE(got.ok()) << text;
    EXPECT_EQ(got.error().code, EINVAL);
    EXPECT_NE(got.error().message.find("write for example"), std::string::npos) << got.error().message;
  }
}

TEST(Budget, TheDefaultIsHalfOfWhatIsAvailable) {
  EXPECT_EQ(default_budget_bytes(machine), 3 * gib);
  EXPECT_EQ(default_budget_bytes({8 * gib, 1 * mib, std::nullopt}), pager::minimum_budget_bytes);
}

}  // namespace
}  // namespace far::preload
