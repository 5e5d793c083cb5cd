#include "common/json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <stdexcept>

namespace evaluation {
namespace {

TEST(json, lists_are_objects_where_all_of_them_are_names_with_values) {
  const json made = {{"name", "pager"}, {"runs", 3}, {"sizes", {1, 2u, 0.5}}, {"inner", {{"is_far", true}}}};
  EXPECT_EQ(made.dump(), R"({"name":"pager","runs":3,"sizes":[1,2,0.5],"inner":{"is_far":true}})");
  EXPECT_EQ(json({{"a", 1}, {"b", 2}, 3}).dump(), R"([["a",1],["b",2],3])");
  EXPECT_EQ(json({30.0, 10.0}).dump(), "[30.0,10.0]");
}

TEST(json, what_is_written_is_read_again) {
  json made;
  made["least"] = std::numeric_limits<std::int64_t>::min();
  made["most"] = std::numeric_limits<std::uint64_t>::max();
  made["real"] = 0.1;
  made["none"] = nullptr;
  made["text"] = "\"a\"\n\xc3\xa9";
  made["empty"] = {{"array", json::array()}, {"object", json::object()}};
  const json read = json::parse(made.dump());
  EXPECT_TRUE(read == made);
  EXPECT_EQ(read.dump(2), made.dump(2));
  EXPECT_EQ(read.at("most").get<std::uint64_t>(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(read.at("least").get<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read.items()[0].name, "least");
}

TEST(json, what_is_no_json_is_null) {
  for (const char* const text : {"", "{", "[1,]", "{\"a\":1} b"}) EXPECT_TRUE(json::parse(text).is_null()) << text;
}

TEST(json, values_are_converted_or_refused) {
  const json made = {{"count", 7}, {"share", 0.25}, {"name", "x"}, {"yes", true}, {"sizes", std::vector{1u, 2u}}};
  const double count = made.at("count");
  EXPECT_EQ(count, 7);
  const std::string name = made.at("name");
  EXPECT_EQ(name, "x");
  EXPECT_TRUE(made.at("yes").get<bool>());
  EXPECT_EQ(made.at("sizes").get<std::vector<unsigned>>(), (std::vector{1u, 2u}));
  EXPECT_EQ(made.value("count", std::size_t{1}), 7u);
  EXPECT_EQ(made.value("other", std::size_t{1}), 1u);
  EXPECT_THROW(static_cast<void>(made.at("name").get<double>()), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(made.at("count").get<std::string>()), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(made.at("yes").get<int>()), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(made.at("other")), std::out_of_range);
  EXPECT_THROW(static_cast<void>(made.at("sizes")[2]), std::out_of_range);
  EXPECT_THROW(static_cast<void>(made[0]), std::invalid_argument);
}

TEST(json, members_replace_those_of_the_same_name) {
  json made = {{"a", 1}, {"b", 2}, {"a", 3}};
  made["b"] = std::map<std::string, double>{{"x", 1.5}};
  EXPECT_EQ(made.dump(), R"({"a":3,"b":{"x":1.5}})");
  json list;
  for (int i = 0; i < 3; ++i) list.push_back(i);
  EXPECT_EQ(list.size(), 3u);
  EXPECT_THROW(made.push_back(1), std::invalid_argument);
  EXPECT_THROW(list["name"] = 1, std::invalid_argument);
}

TEST(json, numbers_of_other_types_are_equal) {
  EXPECT_TRUE(json(1) == json(1u));
  EXPECT_TRUE(json(1u) == json(1.0));
  EXPECT_FALSE(json(-1) == json(std::numeric_limits<std::uint64_t>::max()));
  EXPECT_FALSE(json(1) == json(true));
  EXPECT_FALSE(json(1) == json("1"));
}

}  // namespace
}  // namespace evaluation
