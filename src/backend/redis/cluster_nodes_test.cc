#include "backend/redis/cluster_nodes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace far::backend {
namespace {

std::vector<cluster_node> parse(std::string_view text) {
  std::vector<cluster_node> nodes;
  while (const std::optional<cluster_node> node = next_node(&text)) nodes.push_back(*node);
  return nodes;
}

// The values that `redis-cli cluster keyslot` prints.
TEST(cluster_nodes, keys_have_the_hash_slots_that_redis_gives_them) {
  EXPECT_EQ(hash_slot_of("123456789"), 12739u);
  EXPECT_EQ(hash_slot_of("foo"), 12182u);
  EXPECT_EQ(hash_slot_of("farheap:1:{foo}:7:9"), 12182u);
  EXPECT_EQ(hash_slot_of("a{foo}{bar}"), 12182u);
  EXPECT_EQ(hash_slot_of("{}foo"), hash_slot_of("{}foo"));
  EXPECT_NE(hash_slot_of("{}foo"), 12182u);
  EXPECT_NE(hash_slot_of("{foo"), 12182u);
}

TEST(cluster_nodes, lines_are_taken_apart) {
  const std::string text =
      "07c3 127.0.0.1:30004@31004,hostname4 slave e7d1 0 1426238317239 4 connected\n"
      "67ed 10.0.0.2:30002@31002 master - 0 1426238316232 2 connected 5461-10922 11000\n"
      "e7d1 :30001@31001 myself,master - 0 0 1 connected 0-5460 [93-<-67ed] [77->-07c3]\r\n"
      "292f ::1:30003@31003,,shard-id=69bc master,fail - 0 1426238318243 3 disconnected 10923-10999\n"
      "824f :0@0 slave,noaddr e7d1 0 1426238317741 6 disconnected 1-2\n";
  const std::vector<cluster_node> nodes = parse(text);
  ASSERT_EQ(nodes.size(), 5u);
  EXPECT_EQ(nodes[0].address.text(), "127.0.0.1:30004");
  EXPECT_STREQ(nodes[0].address.name.data(), "hostname4");
  EXPECT_FALSE(nodes[0].is_master);
  EXPECT_EQ(nodes[0].slot_count(), 0u);

  EXPECT_TRUE(nodes[1].is_master);
  EXPECT_EQ(nodes[1].id, "67ed");
  EXPECT_EQ(nodes[1].slot_count(), 5463u);
  EXPECT_TRUE(nodes[1].owns(5461) && nodes[1].owns(10922) && nodes[1].owns(11000));
  EXPECT_FALSE(nodes[1].owns(5460) || nodes[1].owns(10923) || nodes[1].owns(93));

  EXPECT_TRUE(nodes[2].is_self);
  EXPECT_FALSE(nodes[2].address.is_known());
  EXPECT_EQ(nodes[2].address.port, 30001);
  EXPECT_EQ(nodes[2].slot_count(), 5461u) << "slots on their way stay where they are";

  EXPECT_EQ(nodes[3].address.text(), "[::1]:30003");
  EXPECT_STREQ(nodes[3].address.name.data(), "");
  EXPECT_TRUE(nodes[3].has_failed);

  EXPECT_FALSE(nodes[4].owns(1)) << "nobody knows its address";
}

TEST(cluster_nodes, nonsense_owns_nothing) {
  for (const std::string text : {"", "\n", "x", "a b c d e f g h 5-1 20000 -3 7-", "a 1:2 master - 0 0 1 c 16384"}) {
    for (const cluster_node& node : parse(text)) EXPECT_EQ(node.slot_count(), 0u) << text;
  }
  EXPECT_FALSE(node_address::parse("no-port").is_known());
  EXPECT_FALSE(node_address::parse("1.2.3.4:99999").is_known());
  EXPECT_FALSE(node_address::parse(std::string(60, '1') + ":1").is_known());
}

}  // namespace
}  // namespace far::backend
