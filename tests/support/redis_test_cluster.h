// A Redis Cluster of a test's own: nodes on the loopback interface whose hash slots the test moves, key by key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/redis_test_server.h"

namespace far::testing_support {

// Nodes have numbers: masters first, with equal shares of the hash slots, then replicas, one of each master in turn. A
// step of the cluster that does not come about within a minute stops the test program with a message.
class redis_test_cluster {
 public:
  explicit redis_test_cluster(std::size_t masters = 3, std::size_t replicas = 0,
                              const std::vector<std::string>& arguments = {});
  // One that begins to work by itself, in some seconds; call wait_until_it_works() before anything else.
  [[nodiscard]] static std::unique_ptr<redis_test_cluster> begin(std::size_t masters, std::size_t replicas);
  void wait_until_it_works() const;

  // Of its masters, "127.0.0.1:40123,127.0.0.1:40124".
  [[nodiscard]] std::string addresses() const;
  [[nodiscard]] redis_test_server& node(std::size_t number) { return *nodes_[number]; }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }

  // Starts a node that does not belong to the cluster yet, and returns its number. It joins without hash slots.
  std::size_t add_node();
  void join(std::size_t number) const;

  // The nodes that own the slot according to `asked`; size(): none does.
  [[nodiscard]] std::size_t owner_of(std::uint32_t slot, std::size_t asked) const;
  // The keys of a hash slot in a node.
  [[nodiscard]] std::vector<std::string> keys_of(std::uint32_t slot, std::size_t number) const;
  // The hash slots of all keys in a node.
  [[nodiscard]] std::vector<std::uint32_t> used_slots(std::size_t number) const;

  // A hash slot begins to move, keys of it move, and it has moved.
  void begin_move(std::uint32_t slot, std::size_t from, std::size_t to) const;
  void move_key(const std::string& key, std::size_t from, std::size_t to) const;
  void end_move(std::uint32_t slot, std::size_t from, std::size_t to) const;
  // All of that.
  void move(std::uint32_t slot, std::size_t from, std::size_t to) const;

  // Puts a replica in the place of a master that was killed, and waits until `asked` knows. Returns its number.
  [[nodiscard]] std::size_t wait_for_successor(std::uint32_t slot, std::size_t killed, std::size_t asked) const;
  // Makes a node without hash slots a replica of another one.
  void replicate(std::size_t number, std::size_t of) const;
  // Waits until a node is a replica of another one, in step with it.
  void wait_for_replica(std::size_t number, std::size_t of) const;

 private:
  struct only_begun {};
  redis_test_cluster(only_begun, std::size_t masters, std::size_t replicas);

  [[nodiscard]] std::vector<std::string> arguments_of_node() const;
  // The hash slots of a node according to `asked`.
  [[nodiscard]] std::vector<std::uint32_t> slots_of(std::size_t number, std::size_t asked) const;
  [[nodiscard]] std::string id_of(std::size_t number) const;
  void expect(std::size_t number, const std::string& line) const;
  void set_epoch(std::size_t number) const;
  void meet(std::size_t number) const;
  void wait_until_all_know_all() const;
  // Ends the test with what each node knows if it takes minutes.
  void wait_until(const std::string& what, const std::function<bool()>& reached) const;

  const std::vector<std::string> arguments_;
  const std::size_t masters_;
  const std::size_t replicas_;  // at the beginning
  std::vector<std::unique_ptr<redis_test_server>> nodes_;
};

}  // namespace far::testing_support
