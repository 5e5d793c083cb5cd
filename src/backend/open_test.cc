#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "backend/backend.h"

namespace far::backend {
namespace {

std::string message_of(std::string_view uri) {
  const result<std::unique_ptr<backend>> opened = open(uri);
  return opened.ok() ? "opened" : opened.error().message;
}

TEST(open, every_far_tier_opens) {
  EXPECT_EQ(message_of("memory:"), "opened");
  EXPECT_EQ(message_of("memory:?latency=5us&gbps=25&capacity=8G"), "opened");
  EXPECT_EQ(message_of("zmem:"), "opened");
  EXPECT_EQ(message_of("zmem:512M"), "opened");
  EXPECT_EQ(message_of("zmem:512M,file:/var/tmp"), "opened");
  EXPECT_EQ(message_of("zmem:512M?leave=1G,file:/var/tmp"), "opened");
  EXPECT_EQ(message_of("memory:?capacity=1M,zmem:512M,file:/var/tmp"), "opened");
  EXPECT_EQ(message_of("zmem:?capacity=512M&codec=zstd&level=3"), "opened");
  EXPECT_EQ(message_of("file:/var/tmp"), "opened");
  EXPECT_EQ(message_of("file:/var/tmp?capacity=1G&direct=0"), "opened");
}

TEST(name_from_root, paths_of_all_tiers_begin_at_the_root) {
  const std::string here = std::string(std::filesystem::current_path()) + "/";
  EXPECT_EQ(name_from_root("zmem:1G,file:a"), "zmem:1G,file:" + here + "a");
  EXPECT_EQ(name_from_root("tcp://a:1,b:2?token-file=t&copies=2,file:"),
            "tcp://a:1,b:2?token-file=" + here + "t&copies=2,file:");
  for (const char* as_it_is : {"file:", "zmem:512M?leave=1G,file:/var/tmp", "memory:?latency=5us", "nonsense", ""}) {
    EXPECT_EQ(name_from_root(as_it_is), as_it_is);
  }
}

TEST(name_from_root, a_directory_that_reads_as_a_tier_is_left_out) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::filesystem::path odd = std::filesystem::path(testing::TempDir()) / "a,file:b";
  std::filesystem::create_directory(odd);
  std::filesystem::current_path(odd);
  const std::string name = name_from_root("file:c");
  std::filesystem::current_path(before);
  std::filesystem::remove(odd);
  EXPECT_EQ(name, "file:c");
}

TEST(open, an_unknown_far_tier_is_told_the_known_ones) {
  EXPECT_EQ(message_of("floppy:/dev/fd0"),
            "far tier 'floppy:/dev/fd0': there is no 'floppy:'; the far tiers are memory:, zmem:, file:, "
            "shm:, tcp:, redis:, rediss:, redis+cluster:, rediss+cluster:");
}

TEST(open, whoever_looks_for_another_store_is_told_what_serves) {
  EXPECT_EQ(
      message_of("valkey://cache1"),
      "far tier 'valkey://cache1': there is no 'valkey:'; Valkey speaks the protocol of Redis: write redis: instead");
  EXPECT_NE(message_of("memcached://cache1").find("may forget what it stores"), std::string::npos);
  EXPECT_NE(message_of("ofi://cache1").find("write shm:"), std::string::npos);
}

TEST(open, an_unknown_option_is_told_the_known_ones) {
  EXPECT_NE(message_of("memory:?latencie=5us").find("knows latency, gbps, capacity"), std::string::npos);
  EXPECT_NE(message_of("file:/var/tmp?size=1G").find("knows capacity, direct"), std::string::npos);
}

TEST(open, values_without_sense_are_refused) {
  for (const char* uri : {"memory:?latency=5",
                          "memory:?gbps=0",
                          "memory:?capacity=12",
                          "memory:?capacity=9000T",
                          "memory:/path",
                          "file:/var/tmp?direct=2",
                          "file:/var/tmp?capacity=x",
                          "memory",
                          "",
                          "zmem:1G,",
                          "zmem:1G,file:/no/such/place",
                          "zmem:1G,floppy:",
                          "zmem:some",
                          "zmem:0",
                          "zmem:1K",
                          "zmem:9000T",
                          "zmem:1G?capacity=1G",
                          "zmem:?leave=some",
                          "zmem:?codec=gzip",
                          "zmem:?level=3",
                          "zmem:?codec=zstd&level=20"}) {
    const std::string message = message_of(uri);
    EXPECT_NE(message, "opened") << uri;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace far::backend
