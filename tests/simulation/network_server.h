// A farheapd in the simulation: the server's own store, handshake and protocol (server/), with event loops that are
// simulated threads, and memory that a crash empties.
//
// A turn of a loop is not preempted; between two turns anything happens. A loop may be stuck for a while, between its
// quiescent states, as one that is busy with somebody else is.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "network.h"
#include "random_source.h"
#include "scheduler.h"
#include "server/connection.h"
#include "server/store.h"
#include "simulated_devices.h"

namespace far::simulation {

struct network_server_options {
  std::string name;
  std::size_t number = 0;  // in the network
  std::uint64_t memory_blocks = 0;
  std::uint64_t grace_ns = 0;
  std::uint64_t lease_ns = 0;
  std::uint64_t patience_ns = 0;
  std::uint64_t silence_ns = 0;
  std::size_t loops = 1;
  std::uint64_t stuck_per_mille = 0;  // of a loop's turns, in which it does nothing
  std::uint64_t slice_ns = 0;
  std::string tokens;  // as in a token file; empty: none
  device_speed devices;
};

class network_server {
 public:
  network_server(scheduler& threads, random_source& random, const simulated_clock& time, network& joined,
                 network_server_options chosen);
  ~network_server();
  network_server(const network_server&) = delete;
  network_server& operator=(const network_server&) = delete;

  // Starts the threads of its loops; they end after stop().
  void start_threads();
  void stop();
  // A turn of every loop, while no thread runs.
  void pump();

  // Failures. A server that has crashed forgets everything, and refuses until it is started.
  void crash();
  void start();
  void set_paused(bool paused) { paused_ = paused; }
  void drain();
  // A bit changes in so many of the pages in its memory; and the changes that nobody has noticed are taken back: pages
  // that hold what damage() left.
  void damage(std::uint64_t per_mille);
  void undo_damage();
  simulated_devices::killed kill_devices() { return devices_.kill_some(); }
  [[nodiscard]] bool drains() const { return lent_ != nullptr && lent_->draining(); }
  [[nodiscard]] bool is_up() const { return lent_ != nullptr && !paused_ && !lent_->draining(); }

  // For validators: where the bytes of a client's slot are, or nullptr; also while they are damaged.
  [[nodiscard]] const std::byte* bytes(backend::slot_id slot) const;

  [[nodiscard]] const std::string& name() const { return chosen_.name; }
  [[nodiscard]] const server::loop_counters& counters() const { return counters_; }
  [[nodiscard]] std::uint64_t sessions_expired() const { return sessions_expired_; }

 private:
  class block_shelf;
  // A connection, seen from here.
  struct peer {
    std::shared_ptr<link> way;
    std::unique_ptr<server::connection> talk;
    bool is_due = false;  // bytes have moved since it was last looked at
  };
  struct event_loop {
    std::optional<server::quiescent_states::reader> reader;
    std::vector<peer> peers;
    thread_id thread = 0;
  };

  struct damaged_page {
    std::size_t bit = 0;     // that has changed
    std::uint64_t hash = 0;  // of what it holds since
  };

  void forget_damage(std::byte* block);
  void run_loop(std::size_t number);
  void turn(event_loop& loop);
  void accept_all();
  void serve(peer& client);
  [[nodiscard]] bool close_if_over(peer& client);
  void keep_house();
  [[nodiscard]] std::uint64_t next_turn_ns(const event_loop& loop) const;

  scheduler& threads_;
  random_source& random_;
  const simulated_clock& time_;
  network& network_;
  const network_server_options chosen_;
  server::token_book book_;
  simulated_devices devices_;
  server::protocol_settings settings_;
  server::loop_counters counters_;
  std::vector<block_shelf*> shelves_;  // of the sessions, the oldest first
  std::unique_ptr<server::store> lent_;
  std::vector<event_loop> loops_;
  std::map<std::byte*, damaged_page> damaged_;
  std::uint64_t sessions_expired_ = 0;
  bool paused_ = false;
  bool stopping_ = false;
};

}  // namespace far::simulation
