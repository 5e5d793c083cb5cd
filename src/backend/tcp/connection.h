// One connection to a memory server: it says who it is, and moves transfers as messages. Its phases are those of
// store_connection; the store agrees when the handshake is over.
//
// Before a connection repeats anything, the server fences off messages of an earlier connection of this channel number.
// When the server does not know the session any more, all its slots are gone: every request of that epoch ends with
// ESTALE, and a connection that may do so opens a new session.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backend/tcp/reply_receiver.h"
#include "backend/tcp/request_messages.h"
#include "backend/tcp/store_connection.h"
#include "backend/tcp/tcp_session.h"
#include "wire/client_handshake.h"

namespace far::backend {

struct tcp_connection_settings {
  std::string peer;  // for messages: "tcp://cache1:7070"
  std::uint32_t channel = 0;
  std::uint64_t timeout_ns = 0;
  bool opens_session = false;  // when there is none; the others wait for it
};

class tcp_connection final : public store_connection {
 public:
  // Requires: `session` and `time` outlive the connection. `control` may be nullptr.
  tcp_connection(tcp_connection_settings chosen, std::unique_ptr<byte_stream> stream, tcp_session& session,
                 const wire::credentials& shown, const platform::clock& time, control_source* control);

  // The lock is held around every call below that does not say otherwise.
  void set_control(control_source* control) override FAR_REQUIRES(lock) {
    requests_.set_control(control);
    session_.watch(control);
  }

  void show(const std::string& secret) override FAR_REQUIRES(lock) { handshake_.show(secret); }

  // Tells the server that the session is over. False: this cannot be said without waiting.
  [[nodiscard]] bool end_session() FAR_REQUIRES(lock);

  // Tells the server that the process is about to end. False: it cannot be said now. True also when the server is too
  // old to be told.
  [[nodiscard]] bool say_leaving() FAR_REQUIRES(lock);

  // In the child of a fork, without the lock: a new connection, under a channel number of the child's own, that opens
  // no session.
  void restart_in_child(std::uint32_t channel);

  // Recomputes what it knows from its lists, and stops the process when something is wrong.
  void validate() const FAR_REQUIRES(lock);

 private:
  [[nodiscard]] joining join_session() override FAR_REQUIRES(lock);
  void begin_handshake() override FAR_REQUIRES(lock);
  [[nodiscard]] std::span<const std::byte> handshake_to_send() override FAR_REQUIRES(lock);
  void handshake_sent(std::size_t bytes) override FAR_REQUIRES(lock);
  [[nodiscard]] std::span<std::byte> receive_space() override FAR_REQUIRES(lock);
  void take_handshake(std::size_t bytes, std::uint64_t now_ns, const completion_sink* sink) override FAR_REQUIRES(lock);
  [[nodiscard]] bool say(wire::opcode notice) FAR_REQUIRES(lock);
  void be_refused() FAR_REQUIRES(lock);
  void be_welcomed(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  void be_unknown(const completion_sink* sink) FAR_REQUIRES(lock);
  void lose_session(const completion_sink* sink) FAR_REQUIRES(lock);

  void receive(std::uint64_t now_ns, const completion_sink* sink) override FAR_REQUIRES(lock);
  [[nodiscard]] bool parse(std::uint64_t now_ns, const completion_sink* sink) FAR_REQUIRES(lock);
  void build(std::uint64_t now_ns, const completion_sink* sink) override FAR_REQUIRES(lock);
  void build_transfers(std::uint64_t now_ns, const completion_sink* sink) override FAR_REQUIRES(lock);
  [[nodiscard]] bool has_unsent() const override FAR_REQUIRES(lock) { return requests_.has_unsent(); }
  [[nodiscard]] std::size_t gather(std::span<iovec> chunks, std::size_t* total_bytes) override FAR_REQUIRES(lock);
  void note_sent(std::size_t bytes) override FAR_REQUIRES(lock) { requests_.note_sent(bytes); }
  [[nodiscard]] bool awaits_replies() const override FAR_REQUIRES(lock) { return !requests_.empty(); }
  void rewind() override FAR_REQUIRES(lock);
  void fail_stale(const completion_sink* sink) override FAR_REQUIRES(lock);
  void expire_messages(std::uint64_t now_ns, const completion_sink* sink) override FAR_REQUIRES(lock);
  [[nodiscard]] std::uint64_t next_message_ns(std::uint64_t now_ns) const override FAR_REQUIRES(lock);

  tcp_session& session_;
  wire::client_handshake handshake_ FAR_GUARDED_BY(lock);
  std::uint32_t channel_ FAR_GUARDED_BY(lock);
  bool opens_session_;
  wire::session_id joining_ FAR_GUARDED_BY(lock){};                           // asked for by the hello
  std::uint16_t oldest_version_ FAR_GUARDED_BY(lock) = wire::oldest_version;  // that it offers

  request_messages requests_ FAR_GUARDED_BY(lock);
  reply_receiver replies_ FAR_GUARDED_BY(lock);
};

}  // namespace far::backend
