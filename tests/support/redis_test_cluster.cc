#include "tests/support/redis_test_cluster.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "backend/redis/cluster_nodes.h"
#include "base/check.h"

namespace far::testing_support {
namespace {

using backend::cluster_node;
using backend::next_node;

}  // namespace

redis_test_cluster::redis_test_cluster(std::size_t masters, std::size_t replicas,
                                       const std::vector<std::string>& arguments)
    : arguments_(arguments), masters_(masters), replicas_(replicas) {
  for (std::size_t i = 0; i < masters + replicas; ++i) add_node();
  for (std::size_t i = 0; i < masters; ++i) {
    const std::size_t first = backend::cluster_slots * i / masters;
    const std::size_t end = backend::cluster_slots * (i + 1) / masters;
    expect(i, "CLUSTER ADDSLOTSRANGE " + std::to_string(first) + " " + std::to_string(end - 1));
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) set_epoch(i);
  for (std::size_t i = 1; i < nodes_.size(); ++i) meet(i);
  wait_until_all_know_all();
  for (std::size_t i = 0; i < replicas; ++i) replicate(masters + i, i % masters);
  wait_until_it_works();
}

// Each node finds in its folder what it would have learned of the others.
redis_test_cluster::redis_test_cluster(only_begun, std::size_t masters, std::size_t replicas)
    : masters_(masters), replicas_(replicas) {
  const auto name_of = [](std::size_t number) { return std::string(39, 'a') + std::to_string(number); };
  FAR_CHECK(masters + replicas <= 10, "the name of a node has 40 digits");
  for (std::size_t i = 0; i < masters + replicas; ++i) {
    nodes_.push_back(redis_test_server::not_started(arguments_of_node()));
  }
  for (std::size_t self = 0; self < nodes_.size(); ++self) {
    std::ofstream file(nodes_[self]->folder() + "/nodes.conf");
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const bool is_master = i < masters;
      file << name_of(i) << ' ' << nodes_[i]->address() << '@' << nodes_[i]->cluster_port() << ' '
           << (i == self ? "myself," : "") << (is_master ? "master -" : "slave " + name_of((i - masters) % masters))
           << " 0 0 " << i + 1 << " connected";
      if (is_master) {
        file << ' ' << backend::cluster_slots * i / masters << '-' << backend::cluster_slots * (i + 1) / masters - 1;
      }
      file << '\n';
    }
    file << "vars currentEpoch " << nodes_.size() << " lastVoteEpoch 0\n";
  }
  for (const auto& one : nodes_) one->start();
}

std::unique_ptr<redis_test_cluster> redis_test_cluster::begin(std::size_t masters, std::size_t replicas) {
  return std::unique_ptr<redis_test_cluster>(new redis_test_cluster(only_begun{}, masters, replicas));
}

void redis_test_cluster::wait_until_it_works() const {
  for (std::size_t i = 0; i < replicas_; ++i) wait_for_replica(masters_ + i, i % masters_);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    wait_until("a cluster that works", [&] {
      return nodes_[i]->command("CLUSTER INFO").find("cluster_state:ok") != std::string::npos &&
             owner_of(0, i) < size() && owner_of(backend::cluster_slots - 1, i) < size();
    });
  }
}

void redis_test_cluster::wait_until(const std::string& what, const std::function<bool()>& reached) const {
  constexpr int patience_ms = 180'000;  // for hangs: a busy machine makes nodes miss messages
  constexpr int pause_ms = 20;
  for (int waited_ms = 0; waited_ms < patience_ms; waited_ms += pause_ms) {
    if (reached()) return;
    usleep(pause_ms * 1000);
  }
  std::fprintf(stderr, "the test's Redis Cluster: %s did not come about\n", what.c_str());
  for (const auto& asked : nodes_) {
    if (!asked->is_running()) continue;
    std::fprintf(stderr, "according to %s:\n%s\n", asked->address().c_str(), asked->command("CLUSTER NODES").c_str());
  }
  std::abort();
}

std::vector<std::string> redis_test_cluster::arguments_of_node() const {
  std::vector<std::string> arguments{"--cluster-enabled",
                                     "yes",
                                     "--cluster-port",
                                     "0",
                                     "--cluster-node-timeout",
                                     "30000",
                                     "--cluster-require-full-coverage",
                                     "no",
                                     "--cluster-allow-replica-migration",
                                     "no",
                                     "--repl-diskless-sync-delay",
                                     "0"};
  arguments.insert(arguments.end(), arguments_.begin(), arguments_.end());
  return arguments;
}

std::size_t redis_test_cluster::add_node() {
  nodes_.push_back(std::make_unique<redis_test_server>(arguments_of_node()));
  return nodes_.size() - 1;
}

// Of all nodes: fresh ones draw numbers when they meet, and two may draw the same. When replicas have the same one, and
// it is the highest, CLUSTER FAILOVER TAKEOVER of one after the other does not raise it, and nobody obeys the second. A
// master to which a hash slot moves does not raise its own when it seems to be the highest already.
void redis_test_cluster::set_epoch(std::size_t number) const {
  expect(number, "CLUSTER SET-CONFIG-EPOCH " + std::to_string(number + 1));
}

// All others: what one of them tells the others would take seconds.
void redis_test_cluster::meet(std::size_t number) const {
  for (std::size_t i = 0; i < number; ++i) {
    expect(i, "CLUSTER MEET 127.0.0.1 " + std::to_string(nodes_[number]->port()) + " " +
                  std::to_string(nodes_[number]->cluster_port()));
  }
}

void redis_test_cluster::join(std::size_t number) const {
  set_epoch(number);
  meet(number);
  wait_until_all_know_all();
}

void redis_test_cluster::wait_until_all_know_all() const {
  wait_until("a cluster whose nodes know each other", [&] {
    for (const auto& asked : nodes_) {
      const std::string reply = asked->command("CLUSTER NODES");
      std::string_view left = reply;
      std::size_t known = 0;
      while (const auto seen = next_node(&left)) known += seen->address.port != 0;
      if (known != nodes_.size() || reply.find("handshake") != std::string::npos) return false;
    }
    return true;
  });
}

std::string redis_test_cluster::addresses() const {
  std::string text;
  for (const auto& node : nodes_) text += (text.empty() ? "" : ",") + node->address();
  return text;
}

std::string redis_test_cluster::id_of(std::size_t number) const {
  return nodes_[number]->command("CLUSTER MYID");
}

void redis_test_cluster::expect(std::size_t number, const std::string& line) const {
  const std::string reply = nodes_[number]->command(line);
  if (reply.starts_with("-")) std::fprintf(stderr, "%s: %s\n", line.c_str(), reply.c_str());
  FAR_CHECK(!reply.starts_with("-"), "the test's Redis Cluster does what it is told");
}

std::size_t redis_test_cluster::owner_of(std::uint32_t slot, std::size_t asked) const {
  const std::string reply = nodes_[asked]->command("CLUSTER NODES");
  std::string_view left = reply;
  while (const auto seen = next_node(&left)) {
    if (!seen->is_master || seen->has_failed || !seen->owns(slot)) continue;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i]->port() == seen->address.port) return i;
    }
  }
  return nodes_.size();
}

std::vector<std::uint32_t> redis_test_cluster::slots_of(std::size_t number, std::size_t asked) const {
  const std::string reply = nodes_[asked]->command("CLUSTER NODES");
  std::string_view left = reply;
  std::vector<std::uint32_t> slots;
  while (const auto seen = next_node(&left)) {
    if (seen->address.port != nodes_[number]->port()) continue;
    for (std::uint32_t slot = 0; slot < backend::cluster_slots; ++slot) {
      if (seen->owns(slot)) slots.push_back(slot);
    }
  }
  return slots;
}

std::vector<std::string> redis_test_cluster::keys_of(std::uint32_t slot, std::size_t number) const {
  const std::string reply = nodes_[number]->command("EVAL \"return table.concat(redis.call('KEYS','*'),' ')\" 0");
  std::istringstream words(reply);
  std::vector<std::string> keys;
  for (std::string key; words >> key;) {
    if (slot == backend::cluster_slots || backend::hash_slot_of(key) == slot) keys.push_back(key);
  }
  return keys;
}

std::vector<std::uint32_t> redis_test_cluster::used_slots(std::size_t number) const {
  std::set<std::uint32_t> slots;
  for (const std::string& key : keys_of(backend::cluster_slots, number)) slots.insert(backend::hash_slot_of(key));
  return {slots.begin(), slots.end()};
}

void redis_test_cluster::begin_move(std::uint32_t slot, std::size_t from, std::size_t to) const {
  expect(to, "CLUSTER SETSLOT " + std::to_string(slot) + " IMPORTING " + id_of(from));
  expect(from, "CLUSTER SETSLOT " + std::to_string(slot) + " MIGRATING " + id_of(to));
}

void redis_test_cluster::move_key(const std::string& key, std::size_t from, std::size_t to) const {
  const redis_test_server& target = *nodes_[to];
  const std::uint16_t port = target.tls_port() != 0 ? target.tls_port() : target.port();
  expect(from, "MIGRATE 127.0.0.1 " + std::to_string(port) + " " + key + " 0 10000");
}

void redis_test_cluster::end_move(std::uint32_t slot, std::size_t from, std::size_t to) const {
  for (const std::string& key : keys_of(slot, from)) move_key(key, from, to);
  const std::string id = id_of(to);
  expect(to, "CLUSTER SETSLOT " + std::to_string(slot) + " NODE " + id);
  // Keys that were created meanwhile are there by ASK.
  expect(from, "CLUSTER SETSLOT " + std::to_string(slot) + " NODE " + id);
}

void redis_test_cluster::move(std::uint32_t slot, std::size_t from, std::size_t to) const {
  begin_move(slot, from, to);
  end_move(slot, from, to);
}

void redis_test_cluster::replicate(std::size_t number, std::size_t of) const {
  expect(number, "CLUSTER REPLICATE " + id_of(of));
  wait_for_replica(number, of);
  // A node that takes over gets the hash slots that it knows its master to own, and it learns of them later than of the
  // master.
  wait_until("a replica that knows its master's hash slots", [&] { return slots_of(of, number) == slots_of(of, of); });
}

void redis_test_cluster::wait_for_replica(std::size_t number, std::size_t of) const {
  const std::string master = "master_port:" + std::to_string(nodes_[of]->port()) + "\r";
  wait_until("a replica in step", [&] {
    const std::string reply = nodes_[number]->command("INFO replication");
    return reply.find(master) != std::string::npos && reply.find("master_link_status:up") != std::string::npos;
  });
}

std::size_t redis_test_cluster::wait_for_successor(std::uint32_t slot, std::size_t killed, std::size_t asked) const {
  // A short timeout of the cluster would let it do so by itself, and also where a busy machine makes a node wait.
  const std::string master = "master_port:" + std::to_string(nodes_[killed]->port()) + "\r";
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (i == killed || !nodes_[i]->is_running()) continue;
    if (nodes_[i]->command("INFO replication").find(master) == std::string::npos) continue;
    expect(i, "CLUSTER FAILOVER TAKEOVER");
    break;
  }
  std::size_t found = size();
  wait_until("a failover", [&] {
    found = owner_of(slot, asked);
    return found < size() && found != killed;
  });
  return found;
}

}  // namespace far::testing_support
