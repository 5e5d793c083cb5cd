#include "same_results.h"

#include <gtest/gtest.h>

namespace far::bench {
namespace {

TEST(same_results, may_differ_in_the_last_digits_of_fractions) {
  EXPECT_TRUE(are_same_results(R"({"trips":7,"mean":[3.25,{"km":1e9}]})", R"({"mean":[3.25,{"km":1e9}],"trips":7})"));
  EXPECT_TRUE(are_same_results(R"({"mean":3.141592653589793})", R"({"mean":3.141592653589801})"));
  EXPECT_FALSE(are_same_results(R"({"mean":3.14159265})", R"({"mean":3.14159266})"));
  EXPECT_FALSE(are_same_results(R"({"mean":0.0})", R"({"mean":1e-300})"));
}

TEST(same_results, are_otherwise_equal) {
  EXPECT_FALSE(are_same_results(R"({"trips":7})", R"({"trips":8})"));
  EXPECT_FALSE(are_same_results(R"({"trips":1000000000000})", R"({"trips":1000000000001})")) << "a whole number";
  EXPECT_FALSE(are_same_results(R"({"trips":7})", R"({"trips":"7"})"));
  EXPECT_FALSE(are_same_results(R"({"trips":7})", R"({"trip":7})"));
  EXPECT_FALSE(are_same_results(R"({"trips":7})", R"({"trips":7,"more":0})"));
  EXPECT_FALSE(are_same_results("[1,2]", "[1,2,3]"));
  EXPECT_FALSE(are_same_results("[1,2]", "[2,1]"));
  EXPECT_FALSE(are_same_results("null", "0"));
}

TEST(same_results, that_are_texts_are_equal) {
  EXPECT_TRUE(are_same_results("12 gets, 3 hits", "12 gets, 3 hits"));
  EXPECT_FALSE(are_same_results("12 gets, 3 hits", "12 gets, 4 hits"));
  EXPECT_FALSE(are_same_results("", "0"));
}

}  // namespace
}  // namespace far::bench
