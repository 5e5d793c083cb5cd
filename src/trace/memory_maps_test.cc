#include "trace/memory_maps.h"

#include <gtest/gtest.h>

namespace far::trace {
namespace {

constexpr const char* text =
    "00400000-00401000 r--p 00000000 fe:01 17 /opt/my app/bin\n"
    "00401000-00480000 r-xp 00001000 fe:01 17 /opt/my app/bin\n"
    "00600000-00610000 rw-p 00000000 00:00 0 [heap]\n"
    "7f0000000000-7f0000001000 r--p 00000000 fe:01 18 /tmp/data\n"
    "7f0000010000-7f0000020000 r-xp 00000000 fe:01 19 /lib/gone.so (deleted)\n"
    "not a mapping at all\n"
    "7fff00000000-7fff00002000 r-xp 00000000 00:00 0 [vdso]\n";

TEST(memory_maps, joins_the_mappings_of_a_file_and_keeps_those_with_code) {
  const std::vector<module_range> modules = parse_maps({text});
  ASSERT_EQ(modules.size(), 3u);
  EXPECT_EQ(modules[0].path, "/opt/my app/bin");
  EXPECT_EQ(modules[0].first, 0x400000u);
  EXPECT_EQ(modules[0].end, 0x480000u);
  EXPECT_EQ(modules[1].path, "/lib/gone.so");
  EXPECT_TRUE(modules[1].deleted);
  EXPECT_EQ(modules[2].path, "[vdso]");
}

TEST(memory_maps, finds_by_address) {
  const std::vector<module_range> modules = parse_maps({text});
  EXPECT_EQ(find_module(modules, 0x3fffff), nullptr);
  EXPECT_EQ(find_module(modules, 0x400000), &modules[0]);
  EXPECT_EQ(find_module(modules, 0x47ffff), &modules[0]);
  EXPECT_EQ(find_module(modules, 0x480000), nullptr);
}

TEST(memory_maps, a_mapping_below_the_one_before_it_is_left_out) {
  const std::vector<module_range> modules =
      parse_maps({"5000-6000 r-xp 00000000 00:01 1 /a\n1000-2000 r-xp 00001000 00:01 1 /a\n"});
  ASSERT_EQ(modules.size(), 1u);
  EXPECT_EQ(modules[0].first, 0x5000u);
  EXPECT_EQ(modules[0].end, 0x6000u);
}

TEST(memory_maps, the_last_text_counts_and_earlier_ones_fill_its_gaps) {
  const std::vector<module_range> modules =
      parse_maps({"1000-2000 r-xp 00000000 00:01 1 /old\n5000-6000 r-xp 00000000 00:01 2 /unloaded\n",
                  "1000-3000 r-xp 00000000 00:01 3 /new\n"});
  ASSERT_EQ(modules.size(), 2u);
  EXPECT_EQ(modules[0].path, "/new");
  EXPECT_EQ(modules[1].path, "/unloaded");
}

}  // namespace
}  // namespace far::trace
