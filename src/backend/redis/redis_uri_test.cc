#include "backend/redis/redis_uri.h"

#include <gtest/gtest.h>

#include <string>

#include "base/units.h"

namespace far::backend {
namespace {

result<redis_name> parse(const std::string& text) {
  return parse_redis(uri::parse(text).value());
}

std::string error_of(const std::string& text) {
  const result<redis_name> parsed = parse(text);
  EXPECT_FALSE(parsed.ok()) << text;
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(redis_uri, one_server_with_what_is_usual) {
  const redis_name parsed = parse("redis://cache1").value();
  ASSERT_EQ(parsed.servers.size(), 1u);
  EXPECT_EQ(parsed.servers[0], (tcp_endpoint{"cache1", usual_redis_port}));
  EXPECT_EQ(parsed.options.copies, 1u);
  EXPECT_EQ(parsed.options.prefix, "farheap");
  EXPECT_EQ(parsed.options.timeout_ns, 10'000'000'000u);
  EXPECT_EQ(parsed.options.lease_ns, 300'000'000'000u);
  EXPECT_EQ(parsed.options.patience_ns, 0u);
  EXPECT_FALSE(parsed.options.tls);
}

TEST(redis_uri, all_options) {
  const redis_name parsed =
      parse(
          "rediss://a,[fd00::2]:1?copies=2&prefix=x:y&user=far&password-file=/etc/p&db=3&ca=/etc/ca.pem"
          "&connections=4&timeout=1.5s&patience=20s&lease=90s&capacity=8G")
          .value();
  ASSERT_EQ(parsed.servers.size(), 2u);
  EXPECT_EQ(parsed.servers[1], (tcp_endpoint{"fd00::2", 1}));
  const redis_options& chosen = parsed.options;
  EXPECT_EQ(chosen.copies, 2u);
  EXPECT_EQ(chosen.prefix, "x:y");
  EXPECT_EQ(chosen.user, "far");
  EXPECT_EQ(chosen.password_file, "/etc/p");
  EXPECT_EQ(chosen.database, 3u);
  EXPECT_TRUE(chosen.tls);
  EXPECT_EQ(chosen.authority_file, "/etc/ca.pem");
  EXPECT_EQ(chosen.connections, 4u);
  EXPECT_EQ(chosen.timeout_ns, 1'500'000'000u);
  EXPECT_EQ(chosen.patience_ns, 20'000'000'000u);
  EXPECT_EQ(chosen.lease_ns, 90'000'000'000u);
  EXPECT_EQ(chosen.capacity_bytes, 8 * gib);
}

// Where another server has the bytes, a silent one is not waited for long.
TEST(redis_uri, servers_with_copies_are_given_up_earlier) {
  EXPECT_EQ(parse("redis://a,b?copies=2").value().options.timeout_ns, 2'000'000'000u);
  EXPECT_EQ(parse("redis://a,b?copies=2&timeout=7s").value().options.timeout_ns, 7'000'000'000u);
}

TEST(redis_uri, what_is_no_server_is_named) {
  for (const char* const wrong : {"redis:", "redis://", "redis://a:", "redis://a:0", "redis://a:x", "redis://:1",
                                  "redis://a,", "redis://[::1", "redis://a b", "redis://a/0"}) {
    const std::string said = error_of(wrong);
    EXPECT_NE(said.find(wrong), std::string::npos) << said;
    EXPECT_NE(said.find("write for example"), std::string::npos) << said;
  }
  EXPECT_NE(error_of("redis://a,b,a:6379").find("twice"), std::string::npos);
  EXPECT_NE(error_of("redis://far:secret@a").find("password-file"), std::string::npos);
}

TEST(redis_uri, options_without_sense_are_refused) {
  EXPECT_NE(error_of("redis://a?copies=2").find("copies"), std::string::npos);
  EXPECT_NE(error_of("redis://a?connections=17").find("connections"), std::string::npos);
  EXPECT_NE(error_of("redis://a?timeout=1ms").find("timeout"), std::string::npos);
  EXPECT_NE(error_of("redis://a?timeout=2h").find("timeout"), std::string::npos);
  EXPECT_NE(error_of("redis://a?patience=0s").find("patience=30s"), std::string::npos);
  EXPECT_NE(error_of("redis://a?lease=1ms").find("lease"), std::string::npos);
  EXPECT_NE(error_of("redis://a?capacity=1").find("capacity"), std::string::npos);
  EXPECT_NE(error_of("redis://a?user=far").find("password-file"), std::string::npos);
  EXPECT_NE(error_of("redis://a?ca=/x").find("rediss://"), std::string::npos);
  EXPECT_NE(error_of("redis://a?prefix=*").find("prefix"), std::string::npos);
  EXPECT_NE(error_of("redis://a?token-file=/x").find("token-file"), std::string::npos);
}

}  // namespace
}  // namespace far::backend
