#include "backend/redis/server_facts.h"

#include <gtest/gtest.h>

namespace far::backend {
namespace {

constexpr const char* sound =
    "# Server\r\nrun_id:0123456789012345678901234567890123456789\r\n# Memory\r\nused_memory:1000\r\n"
    "total_system_memory:9000\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nrole:master\r\ncluster_enabled:0\r\n";

TEST(server_facts, a_sound_server_is_accepted) {
  const server_facts facts = server_facts::parse(sound);
  EXPECT_EQ(facts.objection(), "");
  EXPECT_STREQ(facts.run_id.text.data(), "0123456789012345678901234567890123456789");
  EXPECT_EQ(facts.room_bytes(), 8000u);
}

TEST(server_facts, what_comes_later_counts) {
  const std::string text = sound;
  EXPECT_NE(server_facts::parse(text + "role:slave\r\n").objection().find("replica"), std::string::npos);
  EXPECT_NE(server_facts::parse(text + "cluster_enabled:1\r\n").objection().find("Cluster"), std::string::npos);
  EXPECT_NE(server_facts::parse("role:master\r\n").objection().find("run_id"), std::string::npos);
  EXPECT_TRUE(server_facts::parse(text + "loading:1").is_loading);
}

TEST(server_facts, only_a_limit_lets_a_policy_act) {
  const std::string evicts = std::string(sound) + "maxmemory_policy:volatile-lru\r\n";
  EXPECT_EQ(server_facts::parse(evicts).objection(), "");
  EXPECT_NE(server_facts::parse(evicts + "maxmemory:5000\r\n").objection().find("'volatile-lru'"), std::string::npos);
  EXPECT_EQ(server_facts::parse(evicts + "maxmemory:5000\r\n").room_bytes(), 4000u);
  EXPECT_EQ(server_facts::parse(evicts + "maxmemory:500\r\n").room_bytes(), 0u);
}

}  // namespace
}  // namespace far::backend
