// One connection of a memory server, without its socket and without a clock: bytes in, bytes out.
//
//     received() -> [in] -> work(): handshake, then requests on the session -> [out] -> to_send(), sent()
//
// An event loop, the simulation and a fuzzer drive it alike. A client that misbehaves can end only its own connection.
// Requests allocate nothing: both buffers have a fixed size, and the server reads nothing from a client that does not
// read its replies. Between two calls of work() the driver passes a quiescent state (quiescent_states.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "server/byte_buffer.h"
#include "server/close_reason.h"
#include "server/counters.h"
#include "server/event_log.h"
#include "server/failed_logins.h"
#include "server/reply_writer.h"
#include "server/request_handler.h"
#include "server/store.h"
#include "server/token_book.h"
#include "server/turn.h"
#include "wire/handshake.h"
#include "wire/message.h"
#include "wire/server_handshake.h"

namespace far::server {

// Shared by all connections of a server. It outlives them.
struct protocol_settings {
  store* lent = nullptr;
  const token_book* tokens = nullptr;
  failed_logins* failures = nullptr;  // nullptr: wrong tokens are not limited
  // The time limit for a handshake, for the rest of a message that has begun, and for reading replies.
  std::uint64_t patience_ns = 10'000'000'000;
  // The longest silence of a client; it pings several times within that time.
  std::uint64_t silence_ns = 60'000'000'000;
  void (*random)(std::span<std::byte>) = wire::fill_random;  // nonces; a simulation passes its own
  wire::server_id identity{};                                // of this process; all zero: it has none
  std::shared_ptr<device_host> devices = nullptr;            // nullptr: there are no plugins
};

class protocol {
 public:
  static constexpr std::uint64_t never = turn::never;

  // `network`: where the client is, as network_of() says; limits count by it.
  protocol(const protocol_settings& settings, loop_counters& counters, std::uint64_t now_ns,
           std::string network = "unknown");
  // Requires: leave() was called.
  ~protocol();
  protocol(const protocol&) = delete;
  protocol& operator=(const protocol&) = delete;

  // The TLS connection that carries it. Call it before work() sees the first bytes.
  void bind(const wire::channel_binding& channel) { handshake_.bind(channel); }

  // Where the client is.
  [[nodiscard]] const std::string& network() const { return network_; }

  // Room for the next bytes from the client. Empty while there is none: then call again after work().
  [[nodiscard]] std::span<std::byte> receive_space();
  // `bytes` have been written there.
  void received(std::size_t bytes, std::uint64_t now_ns);

  // Handles received bytes, as far as the room for replies and the turn's share of work allow. Call it after received()
  // and sent(), and when next_work_ns() has come.
  void work(std::uint64_t now_ns);
  // When to call work() even if nothing has been received or sent; 0: at once.
  [[nodiscard]] std::uint64_t next_work_ns() const;

  // The bytes to be sent. They stay in place until sent(), while work() may append to them.
  [[nodiscard]] std::span<const std::byte> to_send() const { return replies_.to_send(); }
  void sent(std::size_t bytes, std::uint64_t now_ns);

  // The connection must be closed: now or, if flushes(), after to_send() has been sent.
  [[nodiscard]] bool is_over() const { return reason_ != close_reason::none; }
  [[nodiscard]] bool flushes() const { return flushes_ && !replies_.empty(); }
  [[nodiscard]] close_reason reason() const { return reason_; }
  // Ends it, for a reason of the driver's.
  void end(close_reason reason);

  // The connection is closed, and the driver passes no more bytes. The session's grace period begins if it was the
  // last.
  void leave(std::uint64_t now_ns);

  // Gives a copy of its socket to the process of a device, which answers from now on. False: it cannot have it.
  [[nodiscard]] bool hand_over(int socket) const;

  // It is one too many. Its client is told why when it has proved that it may ask at all, and nothing more.
  void turn_away(std::string why) { turned_away_ = std::move(why); }

  // Tells the client that the server will stop.
  void drain() { drain_wanted_ = true; }

  // Gives the memory of idle buffers back.
  void release_memory();

  // For the log: "tenant 'x'", or "a client" before its handshake; and the same for machines, at this peer.
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] event_party party(const std::string& peer) const;
  [[nodiscard]] bool is_serving() const { return phase_ == phase::serving; }
  // Its client has not shown yet who it is. One that waits for the fence of an older connection has.
  [[nodiscard]] bool is_stranger() const { return phase_ == phase::handshaking; }
  // Since the start; the difference of two calls is how many were answered between them.
  [[nodiscard]] std::uint64_t answered() const { return replies_.answered(); }

 private:
  enum class phase : std::uint8_t { handshaking, awaiting_fence, serving };

  void check_deadlines(std::uint64_t now_ns);
  [[nodiscard]] bool handle_next(std::uint64_t now_ns);
  [[nodiscard]] bool is_delayed(std::uint64_t now_ns);
  // Of payload, by all connections of the loop.
  [[nodiscard]] std::uint64_t moved_bytes() const;
  [[nodiscard]] bool is_handled(const wire::header& head, std::span<const std::byte> payload, std::uint64_t now_ns);

  [[nodiscard]] bool is_throttled(std::uint64_t now_ns) const;
  void heed_last_words();
  void shake_hands(const wire::header& head, std::span<const std::byte> payload, std::uint64_t now_ns);
  void attach(std::uint64_t now_ns);
  void try_welcome(std::uint64_t now_ns);
  void send_handshake();
  void end_refused(close_reason reason);

  const protocol_settings& settings_;
  const std::string network_;
  loop_counters& counters_;
  byte_buffer in_;
  turn turn_;
  reply_writer replies_;
  request_handler requests_;

  phase phase_ = phase::handshaking;
  close_reason reason_ = close_reason::none;
  bool flushes_ = false;
  bool left_ = false;
  bool is_returning_ = false;  // named a session of its tenant
  std::string turned_away_;    // why; empty: it is not
  bool drain_wanted_ = false;
  bool drain_sent_ = false;

  wire::server_handshake handshake_;
  attachment mine_;

  std::size_t offered_ = 0;  // of in_, as space to receive into
  // The messages that were here when the first of them began, a round: how much of in_ they still are.
  std::size_t round_bytes_ = 0;

  // Deadlines, each counted from here.
  std::uint64_t started_at_ns_;
  std::uint64_t heard_at_ns_;
  std::uint64_t message_began_ns_ = never;  // a message that is not complete
};

}  // namespace far::server
