#include "base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace far {
namespace {

TEST(printable, leaves_texts_as_they_are) {
  EXPECT_EQ(printable("", 10), "");
  EXPECT_EQ(printable("no room: 3 of 4", 100), "no room: 3 of 4");
  EXPECT_EQ(printable("zu groß, 5 €, 𝄞", 100), "zu groß, 5 €, 𝄞");
}

TEST(printable, shows_what_controls_a_terminal) {
  EXPECT_EQ(printable("a\nb\x1b[31m\x7f", 100), "a\\x0ab\\x1b[31m\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1), 100), "\\x00");
  EXPECT_EQ(printable("\xc2\x9b", 100), "\\xc2\\x9b") << "a control character of Latin-1";
  EXPECT_EQ(printable("\xe2\x80\xae", 100), "\\xe2\\x80\\xae") << "what follows would run from right to left";
}

TEST(printable, shows_what_is_no_text) {
  EXPECT_EQ(printable("\xff", 100), "\\xff");
  EXPECT_EQ(printable("\xc0\x80", 100), "\\xc0\\x80") << "too long for its character";
  EXPECT_EQ(printable("\xe0\x80\x80", 100), "\\xe0\\x80\\x80");
  EXPECT_EQ(printable("\xed\xa0\x80", 100), "\\xed\\xa0\\x80") << "half of a pair";
  EXPECT_EQ(printable("\xf4\x90\x80\x80", 100), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("a\xe2\x82", 100), "a\\xe2\\x82") << "cut short";
  EXPECT_EQ(printable("\xc3(", 100), "\\xc3(");
}

TEST(printable, cuts_between_characters) {
  EXPECT_EQ(printable("abc", 3), "abc");
  EXPECT_EQ(printable("abcd", 3), "abc...");
  EXPECT_EQ(printable("abß", 3), "ab...");
  EXPECT_EQ(printable("a", 0), "...");
  EXPECT_EQ(printable(std::string(1'000'000, '\n'), 1000).size(), 4003u);
}

}  // namespace
}  // namespace far
