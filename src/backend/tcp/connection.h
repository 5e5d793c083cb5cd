// One connection to a memory server: it connects, says who it is, moves transfers as messages, and begins again when it
// breaks.
//
//                 first advance()          connected              welcome
//          idle ------------------> connecting ----> handshaking ---------> ready
//                                    ^     |              |                   |
//                  backoff is over   |     | failure, or  | refused, failure, | the server is gone, silent beyond the
//                  (1 ms, doubled    |     | no answer    | or no answer      | deadline, damages replies, or breaks
//                  up to 1 s)        |     v in time      v in time           v the protocol
//                                    +-- broken <---------+-------------------+
//
// Messages outlive the connection that carried them: whatever has no reply is sent again, in the same order, on the
// next one. Before that, the server ends what an earlier connection of this channel number may still have on its way. A
// request whose deadline passes ends with ETIMEDOUT, in any phase; if it was on its way, the connection breaks with it,
// so that its bytes can no longer land anywhere.
//
// When the server does not know the session any more, all its slots are gone: every request of that epoch ends with
// ESTALE, and a connection that may do so opens a new session.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backend/tcp/byte_stream.h"
#include "backend/tcp/message_pool.h"
#include "backend/tcp/tcp_session.h"
#include "backend/tcp/transfer.h"
#include "backend/tcp/transfer_connection.h"
#include "base/spin_lock.h"
#include "platform/clock.h"
#include "wire/client_handshake.h"

namespace far::backend {

// The requests to the server other than transfers: blocks to allocate and to free.
struct control_request {
  wire::opcode op = wire::opcode::allocate;
  wire::block_range blocks{};
};

// Is asked for the next request whenever the one before is done. Both are called with the connection's lock held.
class control_source {
 public:
  virtual ~control_source() = default;
  // False: nothing to ask for in this epoch now.
  [[nodiscard]] virtual bool next(std::uint32_t epoch, std::uint64_t now_ns, control_request* into) = 0;
  virtual void done(const control_request& request, std::uint32_t epoch, wire::status outcome,
                    std::uint64_t now_ns) = 0;
  // The server is about to stop.
  virtual void draining(std::uint32_t epoch) = 0;
};

struct tcp_connection_settings {
  std::string peer;  // for messages: "tcp://cache1:7000"
  std::uint32_t channel = 0;
  std::uint64_t timeout_ns = 0;
  bool opens_session = false;  // when there is none; the others wait for it
};

// Calls no system but its stream and its clock; allocates nothing once made (a refusal apart).
class tcp_connection final : public transfer_connection {
 public:
  enum class phase : std::uint8_t { idle, connecting, handshaking, ready, broken };

  // Requires: the references outlive the connection. `control` may be nullptr.
  tcp_connection(tcp_connection_settings chosen, std::unique_ptr<byte_stream> stream, tcp_session& session,
                 const wire::credentials& shown, const platform::clock& time, control_source* control);
  ~tcp_connection() override;
  tcp_connection(const tcp_connection&) = delete;
  tcp_connection& operator=(const tcp_connection&) = delete;

  // The lock is held around every call below that does not say otherwise.
  void enqueue(transfer& added) override FAR_REQUIRES(lock);
  void push(const completion_sink* sink) override FAR_REQUIRES(lock);
  [[nodiscard]] bool push_soon(const completion_sink* sink) override FAR_REQUIRES(lock);
  std::uint64_t advance(const completion_sink* sink) override FAR_REQUIRES(lock);

  // Whom to ask for control requests from now on.
  void set_control(control_source* control) FAR_REQUIRES(lock) { control_ = control; }

  // Tells the server that the session is over, as far as this can be said without waiting.
  void end_session() FAR_REQUIRES(lock);

  // In the child of a fork: a new connection, under a channel number of the child's own, that opens no session.
  void restart_in_child(std::uint32_t channel);

  [[nodiscard]] phase now() const FAR_REQUIRES(lock) { return phase_; }
  // Of the last attempt that failed.
  [[nodiscard]] int failure_code() const FAR_REQUIRES(lock) { return failure_code_; }
  [[nodiscard]] const char* explanation() const FAR_REQUIRES(lock) { return explanation_.data(); }
  [[nodiscard]] bool refused() const FAR_REQUIRES(lock) { return refused_; }
  // How many attempts failed in a row.
  [[nodiscard]] unsigned failures() const FAR_REQUIRES(lock) { return failures_; }
  // Since when the server has not been reached; 0: it has. May be called without the lock.
  [[nodiscard]] std::uint64_t away_since_ns() const { return away_since_ns_.load(std::memory_order_relaxed); }
  [[nodiscard]] int descriptor() const override { return stream_->descriptor(); }
  void wait(std::uint64_t timeout_ns) override { stream_->wait(timeout_ns); }

  // Recomputes what it knows from its lists, and stops the process when something is wrong.
  void validate() const FAR_REQUIRES(lock);

 private:
  static constexpr std::size_t receive_buffer_bytes = std::size_t{128} << 10;
  static constexpr std::size_t chunks_per_call = 192;
  static constexpr std::uint64_t longest_silence_ns = 10'000'000'000;

  // A quiet connection shows that it lives: often enough for our own deadline and for the server's patience.
  [[nodiscard]] std::uint64_t ping_after_ns() const { return std::min(settings_.timeout_ns / 2, longest_silence_ns); }

  // connection.cc
  void start_connecting(std::uint64_t now_ns) FAR_REQUIRES(lock);
  void go_on_connecting() FAR_REQUIRES(lock);
  void shake_hands(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  [[nodiscard]] std::ptrdiff_t send_handshake() FAR_REQUIRES(lock);
  void take_handshake(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  void be_refused() FAR_REQUIRES(lock);
  void become_ready(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  void lose_session(const completion_sink* sink) FAR_REQUIRES(lock);
  void enter_epoch(const completion_sink* sink) FAR_REQUIRES(lock);
  void break_off(int code, const char* why) FAR_REQUIRES(lock);
  void expire(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  void expire_messages(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  [[nodiscard]] std::uint64_t next_call_ns(std::uint64_t now_ns) const FAR_REQUIRES(lock);

  // connection_messages.cc
  void build(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  void build_reserved(std::uint64_t now_ns) FAR_REQUIRES(lock);
  void fill(message& outgoing) FAR_REQUIRES(lock);
  void encode(message& outgoing) FAR_REQUIRES(lock);
  void add_reserved(message& outgoing, wire::opcode op, std::uint64_t now_ns) FAR_REQUIRES(lock);
  void send() FAR_REQUIRES(lock);
  [[nodiscard]] std::size_t gather(std::span<iovec> chunks, std::size_t* total_bytes) const FAR_REQUIRES(lock);
  void note_sent(std::size_t bytes) FAR_REQUIRES(lock);
  void receive(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  [[nodiscard]] std::size_t place_for_reply(std::span<iovec> chunks, std::size_t* direct_bytes) const
      FAR_REQUIRES(lock);
  [[nodiscard]] bool parse(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  [[nodiscard]] bool take_header(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  void skip_in_reply(std::size_t bytes) FAR_REQUIRES(lock);
  void copy_to_reply() FAR_REQUIRES(lock);
  [[nodiscard]] bool finish(message& answered, wire::status outcome, std::uint64_t now_ns, const completion_sink* sink)
      FAR_REQUIRES(lock);
  void fail(message& failed, int code, const completion_sink* sink) FAR_REQUIRES(lock);
  void fail_pending(int code, const completion_sink* sink, std::uint32_t except_epoch) FAR_REQUIRES(lock);
  void pop_failed(const completion_sink* sink) FAR_REQUIRES(lock);

  const tcp_connection_settings settings_;
  const std::unique_ptr<byte_stream> stream_;
  tcp_session& session_;
  const platform::clock& time_;
  control_source* control_ FAR_GUARDED_BY(lock);
  wire::client_handshake handshake_ FAR_GUARDED_BY(lock);
  std::uint32_t channel_ FAR_GUARDED_BY(lock);
  bool opens_session_;

  phase phase_ FAR_GUARDED_BY(lock) = phase::idle;
  std::uint32_t epoch_ FAR_GUARDED_BY(lock);                    // of the session that this connection joins
  wire::session_id joining_ FAR_GUARDED_BY(lock){};             // what the hello asked for
  std::uint64_t retry_at_ns_ FAR_GUARDED_BY(lock) = 0;          // idle and broken
  std::uint64_t attempt_deadline_ns_ FAR_GUARDED_BY(lock) = 0;  // connecting and handshaking
  std::uint64_t heard_ns_ FAR_GUARDED_BY(lock) = 0;             // ready: when bytes came last
  std::atomic<std::uint64_t> away_since_ns_;
  unsigned failures_ FAR_GUARDED_BY(lock) = 0;  // in a row, without an answer in between
  bool refused_ FAR_GUARDED_BY(lock) = false;
  int failure_code_ FAR_GUARDED_BY(lock) = 0;
  std::array<char, 448> explanation_ FAR_GUARDED_BY(lock){};

  // The transfers that wait for a message.
  transfer* pending_first_ FAR_GUARDED_BY(lock) = nullptr;
  transfer* pending_last_ FAR_GUARDED_BY(lock) = nullptr;

  // Messages in the pool's list up to `cursor_` are sent; of that one, `cursor_bytes_`.
  message_pool pool_ FAR_GUARDED_BY(lock);
  message* cursor_ FAR_GUARDED_BY(lock) = nullptr;
  std::size_t cursor_bytes_ FAR_GUARDED_BY(lock) = 0;
  unsigned pushes_ FAR_GUARDED_BY(lock) = 0;  // since the last advance()
  message* control_message_ FAR_GUARDED_BY(lock) = nullptr;
  message* ping_message_ FAR_GUARDED_BY(lock) = nullptr;

  // Bytes received and not yet looked at.
  std::byte* const received_;
  std::size_t received_begin_ FAR_GUARDED_BY(lock) = 0;
  std::size_t received_end_ FAR_GUARDED_BY(lock) = 0;

  // The read whose reply is coming in, and the place of its next byte.
  message* reply_ FAR_GUARDED_BY(lock) = nullptr;
  std::uint64_t reply_checksum_ FAR_GUARDED_BY(lock) = 0;
  std::size_t reply_part_ FAR_GUARDED_BY(lock) = 0;
  std::size_t reply_part_bytes_ FAR_GUARDED_BY(lock) = 0;
  std::size_t reply_left_bytes_ FAR_GUARDED_BY(lock) = 0;
};

}  // namespace far::backend
