// The nodes of a Redis Cluster, as the node that was heard last described them. Shared by all connections of a far
// tier.
//
// Each member of the far tier has one hash slot, in which all its keys lie (docs/decisions/0049-redis-cluster.md). The
// directory finds the node that owns a slot now, nodes to ask when that one does not answer, and masters in which no
// member lives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backend/redis/cluster_nodes.h"
#include "base/spin_lock.h"

namespace far::backend {

// Thread-safe. Allocates nothing.
class cluster_directory {
 public:
  struct ownership {
    node_address owner;    // not known: nobody owns the slot
    bool is_self = false;  // the node that was asked
    bool has_failed = false;
  };

  // A reply to CLUSTER NODES, from the node at `from`. Returns who owns `slot`.
  ownership take(std::string_view reply, const node_address& from, std::uint32_t slot);

  // Another node every time, to ask who owns a slot. Unknown: none has been heard of.
  [[nodiscard]] node_address any_node();

  // A member lives in this slot from now on; it may be made more than once before it is there.
  void add_home(std::uint32_t slot);

  // A node that the user has taken out of use: its slots are no vacancies any more, whoever's they are.
  void shun(const node_address& node);

  // A slot of a master in which no member lives, according to two replies in a row: a failover or a migration may be
  // half way in one. A master is returned once in `pause_ns`.
  struct vacancy {
    node_address master;
    std::uint32_t slot = 0;
  };
  [[nodiscard]] std::optional<vacancy> next_vacancy(std::uint64_t now_ns, std::uint64_t pause_ns);

  // In the child of a fork, where nobody else holds it.
  void unlock_after_fork() { lock_.open_in_child(); }

 private:
  static constexpr std::size_t most_nodes = 128;
  static constexpr std::size_t most_homes = 64;

  struct vacant_master {
    vacancy place;
    unsigned replies = 0;          // in a row that agree
    std::uint64_t offered_ns = 0;  // 0: never
  };
  struct vacant_list {
    std::array<vacant_master, most_homes> masters;
    std::size_t count = 0;
  };

  [[nodiscard]] bool is_shunned(const node_address& node) const FAR_REQUIRES(lock_);
  void note_master(const cluster_node& master, const node_address& address, vacant_list* next) FAR_REQUIRES(lock_);
  [[nodiscard]] vacant_list& vacant() FAR_REQUIRES(lock_) { return vacant_[turn_]; }

  spin_lock lock_;
  std::array<node_address, most_nodes> nodes_ FAR_GUARDED_BY(lock_);
  std::size_t node_count_ FAR_GUARDED_BY(lock_) = 0;
  std::size_t next_node_ FAR_GUARDED_BY(lock_) = 0;
  std::array<std::uint32_t, most_homes> homes_ FAR_GUARDED_BY(lock_){};
  std::size_t home_count_ FAR_GUARDED_BY(lock_) = 0;
  std::array<node_address, most_homes> shunned_ FAR_GUARDED_BY(lock_);
  std::size_t shunned_count_ FAR_GUARDED_BY(lock_) = 0;
  // The one of the last reply, and room for the one of the next.
  std::array<vacant_list, 2> vacant_ FAR_GUARDED_BY(lock_);
  std::size_t turn_ FAR_GUARDED_BY(lock_) = 0;
};

// A text for a hash tag in `slot`, drawn at random.
[[nodiscard]] std::string tag_in_slot(std::uint32_t slot);

// A slot of the node, drawn at random: keys of many programs shall not lie in one. Requires: it owns one.
[[nodiscard]] std::uint32_t draw_slot(const cluster_node& owner);

}  // namespace far::backend
