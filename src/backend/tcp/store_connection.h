// A connection to a store that is reopened whenever it breaks, for every protocol.
//
//                 first advance()          connected              the store agrees
//          idle ------------------> connecting ----> handshaking -----------------> ready
//                                    ^     |              |                           |
//                  backoff is over   |     | failure, or  | refused, failure, or      | the store is gone, silent
//                  (1 ms, doubled    |     | no answer    | no answer in time         | beyond the deadline, or breaks
//                  up to 1 s)        |     v in time      v                           v the protocol
//                                    +-- broken <---------+---------------------------+
// A connection that is retired is closed, in any phase, and not opened again.
//
// Messages outlive the connection that carried them: those without a reply are sent again, in the same order, on the
// next one. A request whose deadline passes ends with ETIMEDOUT, in any phase; if it was on its way, the connection
// breaks with it, so that its bytes can no longer land anywhere. When the store has lost the session, everything of
// that epoch ends with ESTALE.
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
#include "backend/tcp/control_source.h"
#include "backend/tcp/transfer_connection.h"
#include "backend/tcp/transfer_queue.h"
#include "platform/clock.h"

namespace far::backend {

// Calls no system but its stream and its clock; allocates nothing after its
// construction (a refusal and a new secret apart).
class store_connection : public transfer_connection {
 public:
  enum class phase : std::uint8_t { idle, connecting, handshaking, ready, broken, retired };

  ~store_connection() override;
  store_connection(const store_connection&) = delete;
  store_connection& operator=(const store_connection&) = delete;

  // The lock is held around every call below that does not say otherwise.
  void enqueue(transfer& added) final FAR_REQUIRES(lock) { pending_.push(added); }
  void push(const completion_sink* sink) final FAR_REQUIRES(lock);
  [[nodiscard]] bool push_soon(const completion_sink* sink) final FAR_REQUIRES(lock);
  [[nodiscard]] bool push_later(const completion_sink* sink) final FAR_REQUIRES(lock);
  std::uint64_t advance(const completion_sink* sink) final FAR_REQUIRES(lock);

  // It is closed, and not opened again. Requires: no transfer is under way.
  void retire() FAR_REQUIRES(lock);

  // The source of control requests from now on; nullptr: there is none.
  virtual void set_control(control_source* control) FAR_REQUIRES(lock) = 0;
  // From the next handshake on, this is the token or the password.
  virtual void show(const std::string& secret) FAR_REQUIRES(lock) = 0;

  [[nodiscard]] phase now() const FAR_REQUIRES(lock) { return phase_; }
  // Of the last attempt that failed.
  [[nodiscard]] int failure_code() const FAR_REQUIRES(lock) { return failure_code_; }
  [[nodiscard]] const char* explanation() const FAR_REQUIRES(lock) { return explanation_.data(); }
  [[nodiscard]] bool refused() const FAR_REQUIRES(lock) { return refused_; }
  // How many attempts failed in a row.
  [[nodiscard]] unsigned failures() const FAR_REQUIRES(lock) { return failures_; }
  // Since when the store has not been reached; 0: it has. May be called without the lock.
  [[nodiscard]] std::uint64_t away_since_ns() const { return away_since_ns_.load(std::memory_order_relaxed); }
  [[nodiscard]] int descriptor() const final { return stream_->descriptor(); }
  void wait(std::uint64_t timeout_ns) final { stream_->wait(timeout_ns); }

 protected:
  static constexpr std::size_t receive_buffer_bytes = std::size_t{128} << 10;
  static constexpr std::size_t chunks_per_call = 192;

  enum class joining : std::uint8_t {
    now,
    later,  // another connection has to open the session first
    stale,  // there is a newer epoch
  };

  // `peer`: for messages, "tcp://cache1:7070". Requires: the references outlive the connection.
  store_connection(std::string peer, std::uint64_t timeout_ns, std::unique_ptr<byte_stream> stream,
                   session_epoch& session, const platform::clock& time);

  [[nodiscard]] const char* peer() const { return peer_.c_str(); }
  [[nodiscard]] std::uint64_t timeout_ns() const { return timeout_ns_; }
  [[nodiscard]] byte_stream& stream() const { return *stream_; }
  [[nodiscard]] const platform::clock& time() const { return time_; }
  // Of the session that this connection joins.
  [[nodiscard]] std::uint32_t epoch() const FAR_REQUIRES(lock) { return epoch_; }
  [[nodiscard]] transfer_queue& pending() FAR_REQUIRES(lock) { return pending_; }

  // Bytes of the store have come.
  void note_heard(std::uint64_t now_ns) FAR_REQUIRES(lock) {
    heard_ns_ = now_ns;
    session_.note_contact(now_ns);
  }
  // The store has answered a request.
  void note_answer() FAR_REQUIRES(lock) { failures_ = redirections_ = 0; }
  // Whether the silence has lasted so long that a ping is due.
  [[nodiscard]] bool wants_ping(std::uint64_t now_ns) const FAR_REQUIRES(lock) {
    return now_ns >= heard_ns_ + ping_after_ns();
  }

  // Where to look for the server of a session that was opened at address `home` of its name: there, and when it has not
  // answered for longer than the timeout, at the other addresses by turns with that one.
  [[nodiscard]] std::size_t next_address(std::size_t home) FAR_REQUIRES(lock);

  // The handshake is over.
  void become_ready(std::uint64_t now_ns) FAR_REQUIRES(lock);
  // `why` "": the meaning of the code.
  void break_off(int code, const char* why) FAR_REQUIRES(lock);
  // The store has sent us to another server: an advance() soon connects there. Not a failure.
  void redirect() FAR_REQUIRES(lock);
  // The store refuses the connection.
  void refuse(const char* why) FAR_REQUIRES(lock);
  // Everything of an earlier epoch fails, and the connection begins anew with the present session.
  void enter_epoch(const completion_sink* sink) FAR_REQUIRES(lock);
  // In the child of a fork, before all else: the connection is the parent's, and ours begins anew.
  void restart_phases() FAR_REQUIRES(lock);
  void send() FAR_REQUIRES(lock);

 private:
  static constexpr std::uint64_t longest_silence_ns = 10'000'000'000;

  // The parts that depend on the protocol. All are called with the lock held.

  // Prepares the stream and the handshake for the session.
  [[nodiscard]] virtual joining join_session() FAR_REQUIRES(lock) = 0;
  virtual void begin_handshake() FAR_REQUIRES(lock) = 0;
  [[nodiscard]] virtual std::span<const std::byte> handshake_to_send() FAR_REQUIRES(lock) = 0;
  virtual void handshake_sent(std::size_t bytes) FAR_REQUIRES(lock) = 0;
  [[nodiscard]] virtual std::span<std::byte> receive_space() FAR_REQUIRES(lock) = 0;
  // So many bytes have come into receive_space(). It calls become_ready(), break_off() or refuse() at the end.
  virtual void take_handshake(std::size_t bytes, std::uint64_t now_ns, const completion_sink* sink)
      FAR_REQUIRES(lock) = 0;

  // Requires: ready.
  virtual void receive(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock) = 0;
  virtual void build(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock) = 0;
  // The part of build() for waiting transfers.
  virtual void build_transfers(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock) = 0;
  [[nodiscard]] virtual bool has_unsent() const FAR_REQUIRES(lock) = 0;
  // Points at the bytes to send next. Requires: has_unsent().
  [[nodiscard]] virtual std::size_t gather(std::span<iovec> chunks, std::size_t* total_bytes) FAR_REQUIRES(lock) = 0;
  virtual void note_sent(std::size_t bytes) FAR_REQUIRES(lock) = 0;

  [[nodiscard]] virtual bool awaits_replies() const FAR_REQUIRES(lock) = 0;
  // The connection is gone: everything without a reply is sent again.
  virtual void rewind() FAR_REQUIRES(lock) = 0;
  // Ends what belongs to another epoch than epoch(). Requires: rewind() was called.
  virtual void fail_stale(const completion_sink* sink) FAR_REQUIRES(lock) = 0;
  // Ends messages whose deadline has passed, and breaks off if there are any.
  virtual void expire_messages(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock) = 0;
  // When the messages under way, or tasks of the protocol's own, want advance() to be called.
  [[nodiscard]] virtual std::uint64_t next_message_ns(std::uint64_t now_ns) const FAR_REQUIRES(lock) = 0;

  // Whatever else the protocol moves, in any phase.
  virtual void advance_others(const completion_sink* sink) FAR_REQUIRES(lock) { static_cast<void>(sink); }
  virtual void retire_others() FAR_REQUIRES(lock) {}

  // A quiet connection shows that it lives: often enough for our own deadline and for the store's patience.
  [[nodiscard]] std::uint64_t ping_after_ns() const { return std::min(timeout_ns_ / 2, longest_silence_ns); }
  void start_connecting(std::uint64_t now_ns) FAR_REQUIRES(lock);
  void go_on_connecting() FAR_REQUIRES(lock);
  void shake_hands(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  [[nodiscard]] std::ptrdiff_t send_handshake() FAR_REQUIRES(lock);
  void expire(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  [[nodiscard]] std::uint64_t next_call_ns(std::uint64_t now_ns) const FAR_REQUIRES(lock);

  const std::string peer_;
  const std::uint64_t timeout_ns_;
  const std::unique_ptr<byte_stream> stream_;
  session_epoch& session_;
  const platform::clock& time_;

  phase phase_ FAR_GUARDED_BY(lock) = phase::idle;
  std::uint32_t epoch_ FAR_GUARDED_BY(lock);
  std::uint64_t retry_at_ns_ FAR_GUARDED_BY(lock) = 0;          // idle and broken
  std::uint64_t attempt_deadline_ns_ FAR_GUARDED_BY(lock) = 0;  // connecting and handshaking
  std::uint64_t heard_ns_ FAR_GUARDED_BY(lock) = 0;             // ready: when bytes came last
  std::atomic<std::uint64_t> away_since_ns_;
  bool was_home_ FAR_GUARDED_BY(lock) = false;      // the last attempt, for the session
  std::size_t elsewhere_ FAR_GUARDED_BY(lock) = 0;  // the last other address that was tried
  unsigned failures_ FAR_GUARDED_BY(lock) = 0;      // in a row, without an answer in between
  unsigned redirections_ FAR_GUARDED_BY(lock) = 0;  // as well
  bool refused_ FAR_GUARDED_BY(lock) = false;
  int failure_code_ FAR_GUARDED_BY(lock) = 0;
  std::array<char, 448> explanation_ FAR_GUARDED_BY(lock){};

  transfer_queue pending_ FAR_GUARDED_BY(lock);
  unsigned pushes_ FAR_GUARDED_BY(lock) = 0;  // since the last advance()
};

}  // namespace far::backend
