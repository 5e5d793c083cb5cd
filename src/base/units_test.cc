#include "base/units.h"

#include <gtest/gtest.h>

namespace far {
namespace {

TEST(units, sizes_in_every_spelling) {
  EXPECT_EQ(parse_size("4096").value(), 4096u);
  EXPECT_EQ(parse_size("64K").value(), 64 * kib);
  EXPECT_EQ(parse_size("512MiB").value(), 512 * mib);
  EXPECT_EQ(parse_size("1.5G").value(), 1536 * mib);
  EXPECT_EQ(parse_size("2gb").value(), 2 * gib);
  EXPECT_EQ(parse_size("1t").value(), tib);
}

TEST(units, sizes_without_sense_are_refused_with_an_example) {
  for (const char* text : {"", "G", "-1G", "1X", "1GG", "1e400G", "nan", "1 2", "0x10"}) {
    const result<std::uint64_t> parsed = parse_size(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.error().message.find("512M"), std::string::npos);
  }
}

TEST(units, durations) {
  EXPECT_EQ(parse_duration_ns("250ns").value(), 250u);
  EXPECT_EQ(parse_duration_ns("5us").value(), 5000u);
  EXPECT_EQ(parse_duration_ns("1.5ms").value(), 1500000u);
  EXPECT_EQ(parse_duration_ns("2s").value(), 2000000000u);
  EXPECT_FALSE(parse_duration_ns("5").ok());
}

TEST(units, formatting_keeps_three_digits) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1536 * mib), "1.50 GiB");
  EXPECT_EQ(format_size(200 * mib), "200 MiB");
  EXPECT_EQ(format_duration(999), "999 ns");
  EXPECT_EQ(format_duration(1234567), "1.23 ms");
}

}  // namespace
}  // namespace far
