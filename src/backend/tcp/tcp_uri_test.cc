#include "backend/tcp/tcp_uri.h"

#include <gtest/gtest.h>

#include <string>

#include "base/units.h"

namespace far::backend {
namespace {

result<tcp_name> parse(const std::string& text) {
  return parse_tcp(uri::parse(text).value());
}

std::string error_of(const std::string& text) {
  const result<tcp_name> parsed = parse(text);
  EXPECT_FALSE(parsed.ok()) << text;
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(tcp_uri, one_server_with_what_is_usual) {
  const tcp_name parsed = parse("tcp://cache1.example:7000").value();
  ASSERT_EQ(parsed.servers.size(), 1u);
  EXPECT_EQ(parsed.servers[0], (tcp_endpoint{"cache1.example", 7000}));
  EXPECT_EQ(parsed.options.copies, 1u);
  EXPECT_EQ(parsed.options.connections, 2u);
  EXPECT_EQ(parsed.options.tenant, "default");
  EXPECT_EQ(parsed.options.timeout_ns, 10'000'000'000u);
  EXPECT_EQ(parsed.options.capacity_bytes, 0u);
  EXPECT_FALSE(parsed.options.tls);
}

TEST(tcp_uri, several_servers_of_all_kinds_of_addresses) {
  const tcp_name parsed = parse("tcp://10.0.0.1:7000,[fd00::2]:7001,[fe80::1%eth0]:7002,b_c-d:1").value();
  ASSERT_EQ(parsed.servers.size(), 4u);
  EXPECT_EQ(parsed.servers[0].text(), "10.0.0.1:7000");
  EXPECT_EQ(parsed.servers[1], (tcp_endpoint{"fd00::2", 7001}));
  EXPECT_EQ(parsed.servers[1].text(), "[fd00::2]:7001");
  EXPECT_EQ(parsed.servers[2].host, "fe80::1%eth0");
  EXPECT_EQ(parsed.servers[3].text(), "b_c-d:1");
}

TEST(tcp_uri, all_options) {
  const tcp_options chosen =
      parse(
          "tcp://a:1,b:2?copies=2&min-copies=2&token-file=/etc/t&tls=1&ca=/etc/ca.pem&connections=4&tenant=x.y"
          "&timeout=1.5s&patience=20s&scrub=1M&capacity=8G")
          .value()
          .options;
  EXPECT_EQ(chosen.copies, 2u);
  EXPECT_EQ(chosen.least_copies, 2u);
  EXPECT_EQ(chosen.token_file, "/etc/t");
  EXPECT_TRUE(chosen.tls);
  EXPECT_EQ(chosen.authority_file, "/etc/ca.pem");
  EXPECT_EQ(chosen.connections, 4u);
  EXPECT_EQ(chosen.tenant, "x.y");
  EXPECT_EQ(chosen.timeout_ns, 1'500'000'000u);
  EXPECT_EQ(chosen.patience_ns, 20'000'000'000u);
  EXPECT_EQ(chosen.scrubbed_pages_per_second, 256u);
  EXPECT_EQ(chosen.capacity_bytes, 8 * gib);
  const tcp_options with_parity = parse("tcp://a:1,b:2,c:3,d:4,e:5,f:6?parity=4+2").value().options;
  EXPECT_EQ(with_parity.parity.data, 4u);
  EXPECT_EQ(with_parity.parity.parity, 2u);
  EXPECT_EQ(with_parity.timeout_ns, 2'000'000'000u) << "a silent server is not waited for long";
}

TEST(tcp_uri, zones_are_named_in_the_order_of_the_servers_or_are_the_hosts) {
  const auto zones_of = [](const char* text) { return parse(text).value().options.zones; };
  EXPECT_EQ(zones_of("tcp://a:1,b:1,c:1?copies=2&zone=x,y.1,x"), (std::vector<std::string>{"x", "y.1", "x"}));
  EXPECT_EQ(zones_of("tcp://a:1,a:2,[::1]:1?copies=2&zone=host"), (std::vector<std::string>{"a", "a", "::1"}));
  EXPECT_TRUE(zones_of("tcp://a:1,b:1?copies=2").empty());
  EXPECT_EQ(zones_of("tcp://a:1,b:1,c:1,d:1?parity=2+1&zone=x,y,z,z").size(), 4u);
  EXPECT_NE(error_of("tcp://a:1,b:1,c:1?copies=2&zone=x,y").find("names 2 zones for 3 servers"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1,b:1?copies=2&zone=x,x").find("in 1 zones, and 2 are needed"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1,a:2?copies=2&zone=host").find("add servers elsewhere"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1,b:1,c:1?parity=2+1&zone=x,y,y").find("page of a row"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1,b:1?zone=x,y").find("copies=2"), std::string::npos);
  for (const char* const wrong : {"x,", ",x", "x,y z", "x,ä"}) {
    EXPECT_NE(error_of(std::string("tcp://a:1,b:1?copies=2&zone=") + wrong).find("zone=host"), std::string::npos);
  }
}

TEST(tcp_uri, a_server_that_is_added_is_in_the_zone_of_its_host) {
  const tcp_name named = parse("tcp://a:1,b:1?copies=2&zone=x,y").value();
  EXPECT_EQ(zone_of_added({"b", 2}, named.servers, named.options), "y");
  EXPECT_EQ(zone_of_added({"c", 2}, named.servers, named.options), "host c");
  const tcp_name by_host = parse("tcp://a:1,b:1?copies=2&zone=host").value();
  EXPECT_EQ(zone_of_added({"c", 2}, by_host.servers, by_host.options), "c");
  const tcp_name without = parse("tcp://a:1,b:1?copies=2").value();
  EXPECT_EQ(zone_of_added({"b", 2}, without.servers, without.options), "");
}

TEST(tcp_uri, what_is_no_server_is_named) {
  for (const char* const wrong :
       {"tcp:",         "tcp://",     "tcp:a:1",     "tcp://a",     "tcp://a:",       "tcp://a:0",     "tcp://a:65536",
        "tcp://a:-1",   "tcp://a:1x", "tcp://:1",    "tcp://a:1,",  "tcp://,a:1",     "tcp://::1:1",   "tcp://[::1]",
        "tcp://[::1:1", "tcp://[]:1", "tcp://[a]:1", "tcp://a b:1", "tcp://user@a:1", "tcp://a:1/path"}) {
    const std::string said = error_of(wrong);
    EXPECT_NE(said.find(wrong), std::string::npos) << said;
    EXPECT_NE(said.find("write for example"), std::string::npos) << said;
  }
  EXPECT_NE(error_of("tcp://a:1,b:1,a:1").find("twice"), std::string::npos);
}

TEST(tcp_uri, options_without_sense_are_refused) {
  EXPECT_NE(error_of("tcp://a:1?copies=2").find("copies"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1?copies=0").find("copies"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1,b:1?parity=2+1").find("needs 3 servers, and 2 are named"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1,b:1,c:1?parity=2+1&copies=2").find("keep one"), std::string::npos);
  for (const char* const wrong : {"2", "2+", "+1", "1+1", "2+0", "9+1", "2+3", "2+1x", "2-1", "-2+1"}) {
    EXPECT_NE(error_of(std::string("tcp://a:1,b:1,c:1?parity=") + wrong).find("write for example parity=2+1"),
              std::string::npos)
        << wrong;
  }
  EXPECT_NE(error_of("tcp://a:1,b:1?copies=2&min-copies=3").find("min-copies"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1?min-copies=2").find("min-copies"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1?connections=0").find("connections"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1?connections=17").find("connections"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1?timeout=1ms").find("timeout"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1?timeout=soon").find("timeout"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1?scrub=1M").find("copies=2"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1?patience=0s").find("patience=30s"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1?capacity=1").find("capacity"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1?tls=yes").find("tls"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1?ca=/x").find("tls=1"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1?tenant=a%20b").find("tenant"), std::string::npos);
  EXPECT_NE(error_of("tcp://a:1?token=secret").find("token-file"), std::string::npos);
}

}  // namespace
}  // namespace far::backend
