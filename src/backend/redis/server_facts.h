// The parts of a server's reply to INFO that decide whether it can be used.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace far::backend {

// Identifies the process: a restarted server has another one. Empty: not known.
struct redis_run_id {
  std::array<char, 41> text{};
  bool operator==(const redis_run_id&) const = default;
  [[nodiscard]] bool is_known() const { return text[0] != '\0'; }
};

struct server_facts {
  redis_run_id run_id;
  // The history of its data, and the one that it goes on from: a replica that has taken over has its master's here,
  // most others none.
  redis_run_id history;
  redis_run_id former_history;
  bool is_replica = false;
  bool is_cluster_node = false;
  bool is_loading = false;
  bool may_evict = false;  // a policy other than noeviction, and a maxmemory that lets it act
  std::array<char, 32> policy{};
  std::uint64_t maxmemory_bytes = 0;  // 0: no limit
  std::uint64_t used_bytes = 0;
  std::uint64_t system_bytes = 0;

  // Facts that the text does not state keep their defaults.
  [[nodiscard]] static server_facts parse(std::string_view info);

  // Why it cannot be used, and what to do; empty: it can. `in_cluster`: as a node of a Redis Cluster.
  [[nodiscard]] std::string objection(bool in_cluster = false) const;

  // How many bytes there is room for within maxmemory, or else in the machine.
  [[nodiscard]] std::uint64_t room_bytes() const;
};

}  // namespace far::backend
