// The settings of a connection to a Redis server.
#pragma once

#include <cstdint>
#include <string>

namespace far::backend {

class cluster_directory;

struct redis_settings {
  std::string peer;      // for messages: "redis://cache1:6379"
  std::string user;      // empty: the default user
  std::string password;  // empty: none is shown
  std::uint64_t database = 0;
  std::uint64_t timeout_ns = 0;
  std::uint64_t lease_ns = 0;
  // Of a Redis Cluster: its nodes, and the hash slot of all keys of the session. nullptr: a single server.
  cluster_directory* cluster = nullptr;
  std::uint32_t hash_slot = 0;
  bool asks = false;    // it asks for strings that have been moved while their hash slot still belongs to another node
  bool writes = false;  // it carries writes, makes and deletes strings, renews leases, and opens the session
};

}  // namespace far::backend
