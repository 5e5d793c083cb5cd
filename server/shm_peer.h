// One connection of a client over shared memory: the handshake on its socket, then its rings.
//
// Operations on its socket never wait. A client that misbehaves can end only its own session.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/close_reason.h"
#include "server/counters.h"
#include "server/failed_logins.h"
#include "server/shm_leftovers.h"
#include "server/shm_memory.h"
#include "server/shm_request_handler.h"
#include "server/shm_rings.h"
#include "server/store.h"
#include "server/token_book.h"
#include "wire/server_handshake.h"

namespace far::server {

// Shared by all connections of the service. It outlives them.
struct shm_settings {
  store* lent = nullptr;
  const token_book* tokens = nullptr;              // empty: only the server's own user and root may connect
  failed_logins* failures = nullptr;               // nullptr: wrong tokens are not limited
  std::uint64_t patience_ns = 10'000'000'000;      // for a handshake
  std::size_t most_connections = 1024;             // after their handshake
  std::shared_ptr<device_host> devices = nullptr;  // nullptr: there are no plugins
};

// Used by one thread. Between two calls of work() that thread passes a quiescent state (quiescent_states.h).
class shm_peer {
 public:
  // Takes the socket over. `served`: how many connections the service has after their handshake; it outlives this.
  shm_peer(const shm_settings& settings, loop_counters& counters, std::size_t& served, int socket,
           std::uint64_t now_ns);
  // Requires: leave() was called.
  ~shm_peer();
  shm_peer(const shm_peer&) = delete;
  shm_peer& operator=(const shm_peer&) = delete;

  // The socket is readable: continues the handshake, takes bells, notices the end.
  void on_socket(std::uint64_t now_ns);
  // Handles requests, up to the turn's share. Returns whether there was anything to do.
  bool work(std::uint64_t now_ns);
  // Deadlines, and whether the client has touched memory that it was not granted.
  void check(std::uint64_t now_ns);

  // Announces that the server sleeps; false when there is something to do first. Call awake() afterwards.
  [[nodiscard]] bool doze();
  void awake();
  // When to call work() again whether or not a bell rings; turn::never: a bell will ring.
  [[nodiscard]] std::uint64_t due_at_ns(std::uint64_t now_ns) const {
    return requests_ && !is_over() ? requests_->due_at_ns(now_ns) : turn::never;
  }

  [[nodiscard]] bool is_over() const { return reason_ != close_reason::none; }
  [[nodiscard]] close_reason reason() const { return reason_; }
  void end(close_reason reason);
  // Tells the client that the bytes of the session's blocks are about to disappear. Call it before they do.
  void revoke();
  // Leaves the session. If this was its last connection, its grace period begins, or it ends at once if the client has
  // closed it: then no process has the socket any more. `left_over` nullptr: the server stops.
  void leave(std::uint64_t now_ns, shm_leftovers* left_over);

  [[nodiscard]] int socket() const { return socket_; }
  // nullptr before the end of the handshake.
  [[nodiscard]] shm_memory* memory() const { return memory_; }
  [[nodiscard]] std::string describe() const;
  // Whose process it is, as text.
  [[nodiscard]] const std::string& user() const { return user_; }

 private:
  enum class phase : std::uint8_t { handshaking, serving };

  void on_message(std::span<const std::byte> message, std::uint64_t now_ns);
  void on_greeting();
  void on_proof(std::uint64_t now_ns);
  [[nodiscard]] result<void> attach();
  void welcome();
  void refuse(std::string_view why);
  void end_refused(close_reason reason);
  [[nodiscard]] bool send_handshake(std::span<const int> descriptors = {});

  const shm_settings& settings_;
  loop_counters& counters_;
  std::size_t& served_;
  int socket_;
  phase phase_ = phase::handshaking;
  bool is_returning_ = false;  // named a session of its tenant
  close_reason reason_ = close_reason::none;
  bool left_ = false;
  std::uint64_t started_at_ns_;
  const std::string user_;  // limits count by it

  wire::server_handshake handshake_;
  attachment mine_;
  shm_memory* memory_ = nullptr;
  shm_rings rings_;
  std::optional<shm_request_handler> requests_;  // while serving
};

}  // namespace far::server
