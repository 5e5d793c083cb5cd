#include "backend/uri.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "base/units.h"

namespace far::backend {
namespace {

TEST(uri, splits_scheme_rest_and_options) {
  const uri parsed = uri::parse("memory:some/where?latency=5us&gbps=2.5&capacity=8G&direct=1").value();
  EXPECT_EQ(parsed.scheme(), "memory");
  EXPECT_EQ(parsed.rest(), "some/where");
  EXPECT_EQ(parsed.duration_ns("latency").value(), 5000u);
  EXPECT_EQ(parsed.positive_number("gbps").value(), 2.5);
  EXPECT_EQ(parsed.size_bytes("capacity").value(), 8 * gib);
  EXPECT_EQ(parsed.flag("direct").value(), true);
}

TEST(uri, options_that_are_not_given_are_nothing) {
  const uri parsed = uri::parse("file:").value();
  EXPECT_EQ(parsed.rest(), "");
  EXPECT_EQ(parsed.size_bytes("capacity").value(), std::nullopt);
  EXPECT_EQ(parsed.duration_ns("latency").value(), std::nullopt);
  EXPECT_EQ(parsed.positive_number("gbps").value(), std::nullopt);
  EXPECT_EQ(parsed.flag("direct").value(), std::nullopt);
}

TEST(uri, options_begin_at_the_last_question_mark) {
  const uri with_option = uri::parse("file:/mnt/who?knows?direct=0").value();
  EXPECT_EQ(with_option.rest(), "/mnt/who?knows");
  EXPECT_EQ(with_option.flag("direct").value(), false);
  EXPECT_EQ(uri::parse("file:/mnt/who?knows?").value().rest(), "/mnt/who?knows");
}

TEST(uri, text_without_a_scheme_is_refused_with_an_example) {
  for (const char* text : {"", "/var/tmp", "memory", ":", "Memory:", "me mory:"}) {
    const result<uri> parsed = uri::parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.error().message.find("file:/mnt/ssd"), std::string::npos) << parsed.error().message;
  }
}

TEST(uri, malformed_options_are_refused) {
  for (const char* text :
       {"memory:?latency", "memory:?=5", "memory:?latency=", "memory:?a=1&&b=2", "memory:?a=1&a=1"}) {
    const result<uri> parsed = uri::parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.error().message.find(text), std::string::npos) << "names the far tier";
    EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  }
}

TEST(uri, unknown_option_lists_the_known_ones) {
  const uri parsed = uri::parse("memory:?latencie=5us").value();
  const result<void> checked = parsed.allow_options({"latency", "gbps"});
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().message,
            "far tier 'memory:?latencie=5us': unknown option 'latencie'; 'memory:' knows latency, gbps");
  EXPECT_TRUE(parsed.allow_options({"latencie"}).ok());
}

TEST(uri, values_without_sense_are_refused_with_a_right_one) {
  const auto message_of = [](const auto& value) {
    return value.ok() ? std::string("accepted") : value.error().message;
  };
  for (const char* text : {"m:?x=5", "m:?x=us", "m:?x=-5us", "m:?x=5 us"}) {
    EXPECT_NE(message_of(uri::parse(text).value().duration_ns("x")).find("5us"), std::string::npos) << text;
  }
  for (const char* text : {"m:?x=big", "m:?x=-1G", "m:?x=0", "m:?x=100"}) {
    const std::string message = message_of(uri::parse(text).value().size_bytes("x"));
    EXPECT_TRUE(message.find("512M") != std::string::npos || message.find("8G") != std::string::npos) << message;
  }
  for (const char* text : {"m:?x=0", "m:?x=-3", "m:?x=nan", "m:?x=inf", "m:?x=25g", "m:?x=1e400"}) {
    EXPECT_NE(message_of(uri::parse(text).value().positive_number("x")).find("0.5"), std::string::npos) << text;
  }
  for (const char* text : {"m:?x=2", "m:?x=yes", "m:?x=00"}) {
    EXPECT_NE(message_of(uri::parse(text).value().flag("x")).find("neither 0 nor 1"), std::string::npos) << text;
  }
}

// A program may go to another directory and read them again, or fork a child that does.
TEST(uri, files_are_named_from_the_root) {
  const uri name = uri::parse("m:a?b?x=1&token-file=here&ca=/there&y=token-file").value();
  const std::string here = std::string(std::filesystem::current_path()) + "/here";
  EXPECT_EQ(name.file("token-file"), here);
  EXPECT_EQ(name.file("ca"), "/there");
  EXPECT_EQ(name.file("z"), std::nullopt);
  EXPECT_EQ(name.text_from_root(), "m:a?b?x=1&token-file=" + here + "&ca=/there&y=token-file");
  EXPECT_EQ(uri::parse("m:a?").value().text_from_root(), "m:a?");
}

TEST(uri, paths_are_named_from_the_root) {
  const std::string here = std::string(std::filesystem::current_path()) + "/";
  const auto from_root = [](const char* name) { return uri::parse(name).value().text_from_root(); };
  EXPECT_EQ(from_root("file:a/b?direct=0"), "file:" + here + "a/b?direct=0");
  EXPECT_EQ(from_root("file:a?b?"), "file:" + here + "a?b?");
  EXPECT_EQ(from_root("shm:./a?tenant=x&token-file=t"), "shm:" + here + "./a?tenant=x&token-file=" + here + "t");
  for (const char* as_it_is : {"file:", "file:/a?", "shm:main", "shm:/a/b", "memory:a/b"}) {
    EXPECT_EQ(from_root(as_it_is), as_it_is);
  }
}

TEST(uri, a_directory_above_may_hold_a_question_mark) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::filesystem::path odd = std::filesystem::path(testing::TempDir()) / "who?knows";
  std::filesystem::create_directory(odd);
  std::filesystem::current_path(odd);
  const std::string path = std::string(std::filesystem::current_path()) + "/a";
  const uri whole = uri::parse(uri::parse("file:a").value().text_from_root()).value();
  const uri with_option = uri::parse(uri::parse("file:a?direct=0").value().text_from_root()).value();
  std::filesystem::current_path(before);
  std::filesystem::remove(odd);
  EXPECT_EQ(whole.rest(), path);
  EXPECT_EQ(with_option.rest(), path);
  EXPECT_EQ(with_option.flag("direct").value(), false);
}

}  // namespace
}  // namespace far::backend
