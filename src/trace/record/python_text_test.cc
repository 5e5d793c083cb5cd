#include "trace/record/python_text.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "trace/format.h"

namespace far::trace {
namespace {

std::string parsed(std::string_view text, std::size_t room = 4096) {
  std::array<char, 4096> into{};
  return {into.data(), parse_python_text(text, std::span(into).first(room))};
}

TEST(python_text, Frames) {
  EXPECT_EQ(parsed("Stack (most recent call first):\n"
                   "  File \"/data/a job.py\", line 7 in visit\n"
                   "  File \"<frozen runpy>\", line 198 in <module>\n"),
            "/data/a job.py:7 visit\n<frozen runpy>:198 <module>\n");
}

TEST(python_text, NamesThatLookLikeTheRest) {
  EXPECT_EQ(parsed("  File \"/a, line 3 in b/c.py\", line 12 in work\n"), "/a, line 3 in b/c.py:12 work\n");
  EXPECT_EQ(parsed("  File ???, line ??? in work\n"), "???:0 work\n");
}

TEST(python_text, WhatIsNoFrameIsLeftOut) {
  EXPECT_EQ(parsed("Stack (most recent call first):\n  <no Python frame>\n"), "");
  EXPECT_EQ(parsed("  ...\n  File \"x.py\", line z in f\n  File \"x.py\" in f\n  File \"x.py\", line 1 in \n"), "");
  EXPECT_EQ(parsed(""), "");
}

TEST(python_text, WhatIsCutShortIsLeftOut) {
  EXPECT_EQ(parsed("  File \"x.py\", line 1 in f\n  File \"y.py\", line 2 in g"), "x.py:1 f\n");
  EXPECT_EQ(parsed("  File \"x.py\", line 1 in f\n  File \"y.py\", line 2 in g\n", 15), "x.py:1 f\n");
}

TEST(python_text, DeepStacksAreCut) {
  std::string text;
  for (unsigned i = 0; i < 100; ++i) text += "  File \"x.py\", line " + std::to_string(i) + " in f\n";
  const std::string lines = parsed(text);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), deepest_stack);
}

}  // namespace
}  // namespace far::trace
