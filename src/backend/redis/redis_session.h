// The session on one Redis server that all connections of a backend share.
#pragma once

#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "backend/redis/cluster_nodes.h"
#include "backend/redis/data_histories.h"
#include "backend/redis/server_facts.h"
#include "backend/tcp/transfer_connection.h"
#include "base/spin_lock.h"

namespace far::backend {

// A session is our set of keys in one process of the server: a restarted server may have read an older state of them
// from its disk. Thread-safe.
class redis_session final : public session_epoch {
 public:
  struct view {
    redis_run_id run_id;  // not known: to be opened
    std::uint32_t epoch = 1;
    std::size_t address = 0;    // of those that the server's name has: where it was opened
    bool has_departed = false;  // the process of `run_id` has said that another node of its cluster has our strings now
    redis_run_id former_history;  // that its data went on from when the session came to it
  };

  // Keys begin with `stem`.
  explicit redis_session(std::string stem) : stem_(std::move(stem)) {}

  [[nodiscard]] const std::string& stem() const { return stem_; }

  [[nodiscard]] view now() const {
    const lock_guard guard(lock_);
    return now_;
  }

  // A connection has found a server for `epoch`. Returns false when the epoch is over, or has a server already.
  [[nodiscard]] bool opened(std::uint32_t epoch, const server_facts& facts, std::size_t address) {
    const lock_guard guard(lock_);
    if (now_.epoch != epoch || now_.run_id.is_known()) return false;
    now_.run_id = facts.run_id;
    now_.address = address;
    now_.former_history = facts.former_history;
    histories_.clear();
    histories_.add(facts);
    room_bytes_.store(facts.room_bytes(), std::memory_order_relaxed);
    return true;
  }

  // The process of the session of `epoch` has been found at another address of its name. Returns whether that is news.
  bool moved(std::uint32_t epoch, std::size_t address) {
    const lock_guard guard(lock_);
    if (now_.epoch != epoch || now_.address == address) return false;
    now_.address = address;
    return true;
  }
  // Another server answers under the same name. Returns whether that is news in this epoch.
  [[nodiscard]] bool note_stranger(std::uint32_t epoch) { return told_of_stranger_.exchange(epoch) != epoch; }

  // In a cluster: where the owner of our hash slot is thought to be.
  [[nodiscard]] node_address target() const {
    const lock_guard guard(lock_);
    return target_;
  }
  // Returns whether that is news.
  bool retarget(const node_address& owner) {
    const lock_guard guard(lock_);
    if (target_ == owner) return false;
    target_ = owner;
    return true;
  }

  // What a process says of itself. Without effect unless it is the one that has our strings.
  void note(const server_facts& said) {
    const lock_guard guard(lock_);
    if (said.run_id == now_.run_id) histories_.add(said);
  }
  // A process to which some of our strings have been moved says this of itself.
  void note_asked(const server_facts& said) {
    const lock_guard guard(lock_);
    histories_.add(said);
  }
  // The process `said` has told that our strings belong to another node now; or that they are still its own.
  void note_departure(const redis_run_id& said, bool has_departed = true) {
    const lock_guard guard(lock_);
    if (said.is_known() && said == now_.run_id) now_.has_departed = has_departed;
  }

  // Whether the process that has our strings has been a replica meanwhile: it is a master that goes on from another
  // history than before. It may have taken its data over from a master that lacks our latest writes.
  [[nodiscard]] bool has_been_replica(const server_facts& said) const {
    const lock_guard guard(lock_);
    return said.run_id == now_.run_id && said.former_history.is_known() && said.former_history != now_.former_history;
  }
  // Whether that process is a replica now. One that has lost its last hash slot in a cluster becomes one, too.
  [[nodiscard]] bool is_replica(const server_facts& said) const {
    const lock_guard guard(lock_);
    return said.is_replica && said.run_id == now_.run_id && now_.run_id.is_known();
  }

  // Whether the process may have been a replica of one that has had strings of ours, and lack the latest writes.
  [[nodiscard]] bool is_successor(const server_facts& facts) const {
    const lock_guard guard(lock_);
    return histories_.has_successor(facts);
  }

  // Another process owns our hash slot now. Returns whether our strings are there as we left them: they have been
  // moved, and it is no replica that has taken over.
  [[nodiscard]] bool follow(std::uint32_t epoch, const server_facts& facts) {
    const lock_guard guard(lock_);
    if (now_.epoch != epoch || !now_.has_departed || histories_.has_successor(facts)) return false;
    now_.run_id = facts.run_id;
    now_.has_departed = false;
    now_.former_history = facts.former_history;
    histories_.clear();
    histories_.add(facts);
    return true;
  }

  // Keys of `epoch` are gone. Returns whether that is news.
  bool lost(std::uint32_t epoch) {
    const lock_guard guard(lock_);
    if (now_.epoch != epoch) return false;
    now_ = {};
    now_.epoch = epoch + 1;
    histories_.clear();
    set_epoch(now_.epoch);
    return true;
  }

  // The room that the server had when the session was opened; 0 before.
  [[nodiscard]] std::uint64_t room_bytes() const { return room_bytes_.load(std::memory_order_relaxed); }

  // The identity of the process that the last connection has reached; 0: unknown.
  [[nodiscard]] std::uint64_t identity() const { return identity_.load(std::memory_order_relaxed); }
  void note_identity(const redis_run_id& said) {
    // Drawn at random by the server, in hexadecimal digits.
    constexpr std::size_t digits = 16;
    std::uint64_t number = 0;
    std::from_chars(said.text.data(), said.text.data() + digits, number, 16);
    identity_.store(number, std::memory_order_relaxed);
  }

  // Refusals are logged once, however many connections notice. Returns whether this is news.
  [[nodiscard]] bool note_refusal(bool refused) { return refuses_.exchange(refused) != refused; }

  // In the child of a fork, where nobody else holds it.
  void unlock_after_fork() { lock_.open_in_child(); }

 private:
  const std::string stem_;
  mutable spin_lock lock_;
  view now_ FAR_GUARDED_BY(lock_);
  // Of the process, and of those to which some of our strings have been moved.
  data_histories histories_ FAR_GUARDED_BY(lock_);
  node_address target_ FAR_GUARDED_BY(lock_);
  std::atomic<std::uint64_t> room_bytes_{0};
  std::atomic<std::uint64_t> identity_{0};
  std::atomic<bool> refuses_{false};
  std::atomic<std::uint32_t> told_of_stranger_{0};
};

}  // namespace far::backend
