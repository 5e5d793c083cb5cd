#include "trace/symbolizer.h"

#include <gtest/gtest.h>

#include <array>
#include <exception>
#include <fstream>
#include <sstream>

namespace far::trace {
namespace {

std::string own_maps() {
  std::ifstream file("/proc/self/maps");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct place {
  std::uint64_t address;
  unsigned line;
};

// The address behind a call in this function, with the call's line. Calls that never return may stand last, so that the
// return address belongs to the next function; not so here, where the line alone can be wrong.
[[gnu::noinline]] std::uint64_t return_address() {
  return reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
}

[[gnu::always_inline]] inline place inlined_place() {
  place here{0, __LINE__ + 1};
  here.address = return_address();
  return here;
}

[[gnu::noinline]] place outer_place() {
  place here = inlined_place();
  here.line += 1;  // not the last thing that the function does
  here.line -= 1;
  return here;
}

TEST(symbolizer, names_the_inlined_function_and_the_one_around_it) {
  symbolizer symbols({own_maps()});
  const place here = outer_place();
  const std::vector<frame>& frames = symbols.at(here.address, true);
  ASSERT_GE(frames.size(), 2u);
  EXPECT_NE(frames[0].function.find("far::trace::"), std::string::npos) << frames[0].function;
  EXPECT_NE(frames[0].function.find("inlined_place"), std::string::npos) << frames[0].function;
  EXPECT_TRUE(frames[0].inlined);
  EXPECT_EQ(frames[0].line, here.line);
  EXPECT_TRUE(frames[0].file.ends_with("/symbolizer_test.cc")) << frames[0].file;
  EXPECT_NE(frames[1].function.find("outer_place"), std::string::npos) << frames[1].function;
  EXPECT_FALSE(frames[1].inlined);
  EXPECT_GT(frames[1].line, here.line);
  EXPECT_TRUE(frames[1].file.ends_with("/symbolizer_test.cc")) << frames[1].file;
  EXPECT_TRUE(frames[1].module.ends_with("symbolizer_test"));
  EXPECT_TRUE(symbols.missing().empty());
}

TEST(symbolizer, the_first_address_is_looked_up_as_it_is) {
  symbolizer symbols({own_maps()});
  const auto entry = reinterpret_cast<std::uint64_t>(&outer_place);
  EXPECT_NE(symbols.at(entry, false).back().function.find("outer_place"), std::string::npos);
  // The byte before a function is not in it.
  EXPECT_EQ(symbols.at(entry, true).back().function.find("outer_place"), std::string::npos);
}

TEST(symbolizer, a_module_without_debug_information_keeps_its_symbols_and_is_told_of) {
  symbolizer symbols({own_maps()});
  const auto address = reinterpret_cast<std::uint64_t>(&std::terminate);
  const frame& found = symbols.at(address, false).back();
  if (found.line != 0) GTEST_SKIP() << "the C++ library has debug information here";
  EXPECT_NE(found.module.find("libstdc++"), std::string::npos);
  EXPECT_NE(found.function.find("std::terminate"), std::string::npos);
  ASSERT_EQ(symbols.missing().size(), 1u);
  EXPECT_NE(symbols.missing()[0].advice.find("dbgsym"), std::string::npos);
}

TEST(symbolizer, addresses_in_no_module_and_in_lost_files_are_frames_without_names) {
  symbolizer symbols({"1000-2000 r-xp 00000000 00:01 1 /no/such/file\n5000-6000 r-xp 00000000 00:01 1 /x (deleted)\n"});
  EXPECT_EQ(symbols.at(0x99999, false).at(0).module, "");
  const frame& lost = symbols.at(0x1010, false).at(0);
  EXPECT_EQ(lost.module, "/no/such/file");
  EXPECT_EQ(lost.offset, 0x10u);
  EXPECT_EQ(symbols.at(0x5010, false).at(0).module, "/x");
  EXPECT_EQ(symbols.missing().size(), 2u);
}

}  // namespace
}  // namespace far::trace
