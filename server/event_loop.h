// One thread that serves connections: it moves bytes in batches (transport.h), and hands them to each connection's
// protocol. Loops share the store and nothing else.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_mutex.h"
#include "server/connection.h"
#include "server/counters.h"
#include "server/quiescent_states.h"
#include "server/transport.h"

namespace far::server {

struct loop_settings {
  const protocol_settings* protocol = nullptr;
  wire::tls_context* security = nullptr;  // nullptr: plain
  std::uint32_t most_connections = 1024;
  bool use_io_uring = true;  // where it is permitted
  // How long a loop polls after the last event before it sleeps: waking up takes longer than most pauses.
  std::uint64_t spin_ns = 0;
  // How long a newcomer waits for a place when all are taken: the connections of a client that has just ended may not
  // be closed yet. It is checked at least every 50 ms.
  std::uint64_t place_patience_ns = 100'000'000;
};

class event_loop {
 public:
  // Starts the thread. `settings` outlives the loop.
  event_loop(const loop_settings& settings, quiescent_states& readers);
  // How many connections it may have open at a time: those that wait for a place and those that it turns away, too.
  [[nodiscard]] static std::uint32_t most_descriptors(const loop_settings& settings) {
    return settings.most_connections + most_turned_away + most_waiting;
  }
  // Requires: stopped by end_now().
  ~event_loop();
  event_loop(const event_loop&) = delete;
  event_loop& operator=(const event_loop&) = delete;

  // Thread-safe. Serves the socket from now on, and closes it in the end.
  void adopt(int socket, std::string peer);
  // Tells every client, and those that come later, that the server will stop.
  void drain();
  // Closes every connection, and ends.
  void end_now();

  [[nodiscard]] bool has_ended() const { return ended_.load(); }
  [[nodiscard]] std::size_t connections() const { return open_count_.load(std::memory_order_relaxed); }
  [[nodiscard]] const loop_counters& counters() const { return counters_; }

 private:
  struct served {
    std::unique_ptr<connection> talk;  // nullptr: this number is unused
    std::string peer;
    int socket = -1;
    bool receiving = false;
    bool sending = false;
    bool closing = false;
    bool touched = false;
    bool is_turned_away = false;                // it is one too many
    bool listed = false;                        // in due_
    std::uint64_t due_at_ns = protocol::never;  // to be served again
    std::uint64_t active_at_ns = 0;
    std::uint64_t waiting_since_ns = 0;  // requests that arrived then are not answered yet; 0: there are none
    std::uint64_t measured = 0;          // answers whose latency has been counted
  };
  struct newcomer {
    int socket;
    std::string peer;
    std::uint64_t since_ns = 0;  // when the loop saw it first
  };

  // How many that are one too many hear why at a time. The rest only sees that its connection ends.
  static constexpr std::uint32_t most_turned_away = 16;
  // How many wait for a place at a time: they keep descriptors of the server.
  static constexpr std::uint32_t most_waiting = 64;

  void run();
  void take_newcomers(std::uint64_t now_ns);
  void take_waiting(std::uint64_t now_ns);
  [[nodiscard]] bool may_wait(const newcomer& arrived, std::uint64_t now_ns) const;
  void admit(newcomer& arrived, std::uint64_t now_ns);
  void make_room_for_newcomers();
  [[nodiscard]] bool is_full() const;
  void turn_away(served& surplus);
  void on_event(const transport::event& completion, std::uint64_t now_ns);
  void touch(std::uint32_t number);
  void touch_due(std::uint64_t now_ns);
  void serve(std::uint32_t number, std::uint64_t now_ns);
  void close_down(std::uint32_t number, std::uint64_t now_ns);
  void look_after_all(std::uint64_t now_ns);
  void obey_orders();
  void measure(served& whose, std::uint64_t now_ns);
  [[nodiscard]] std::uint64_t sleep_ns(std::uint64_t now_ns) const;

  const loop_settings& settings_;
  quiescent_states& readers_;
  loop_counters counters_;

  thread_mutex newcomers_lock_;
  std::vector<newcomer> newcomers_ FAR_GUARDED_BY(newcomers_lock_);
  std::atomic<bool> has_newcomers_{false};
  std::atomic<int> orders_{0};  // 1: drain, 2: end now
  std::atomic<bool> ended_{false};
  std::atomic<std::size_t> open_count_{0};
  thread_mutex transport_lock_;  // transport_ exists; for wake()

  // The thread's own:
  std::unique_ptr<transport> transport_;
  std::vector<served> all_;
  std::vector<std::uint32_t> unused_;
  std::vector<newcomer> waiting_;        // for a place, the first first
  std::uint32_t turned_away_ = 0;        // of all_
  std::vector<std::uint32_t> to_serve_;  // at this turn
  std::vector<std::uint32_t> due_;       // those listed: to be served again before all are checked next
  int obeyed_ = 0;
  std::uint64_t due_at_ns_ = protocol::never;  // the first of them, or earlier
  std::uint64_t look_at_ns_ = 0;

  std::thread thread_;
};

}  // namespace far::server
