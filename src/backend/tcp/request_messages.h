// The requests of a connection to a memory server that have no reply yet: built from waiting transfers, sent in order,
// and kept until the reply has come, so that the next connection can send them again.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/tcp/control_source.h"
#include "backend/tcp/message_pool.h"
#include "backend/tcp/transfer_queue.h"
#include "wire/message.h"

namespace far::backend {

// Belongs to the connection's lock.
class request_messages {
 public:
  explicit request_messages(std::uint64_t timeout_ns) : timeout_ns_(timeout_ns) {}

  void set_control(control_source* control) { control_ = control; }
  // At most this many at a time: the server takes no more.
  void limit(std::size_t most) { pool_.limit(most); }
  // The version of the protocol that this server speaks.
  void speak(std::uint16_t version) { version_ = version; }

  [[nodiscard]] bool empty() const { return pool_.first() == nullptr; }
  // When the first of them ends; the highest number when there are none.
  [[nodiscard]] std::uint64_t first_deadline_ns() const;
  [[nodiscard]] message* find(std::uint64_t cookie) const { return pool_.find(cookie); }

  // The next control request, if there is one; a ping, if the connection is silent; and messages for what waits.
  void build(transfer_queue& pending, std::uint32_t epoch, bool wants_ping, std::uint64_t now_ns,
             const completion_sink* sink);

  [[nodiscard]] bool has_unsent() const { return cursor_ != nullptr; }
  // Points at the bytes to send next, from the cursor on.
  [[nodiscard]] std::size_t gather(std::span<iovec> chunks, std::size_t* total_bytes) const;
  void note_sent(std::size_t bytes);
  // The connection is gone: all are sent again.
  void rewind();

  // The reply has come. False: the message has to be sent again on another connection. Of several transfers in a
  // message that the server refuses one may be to blame, so they go back to those that wait, each to be sent alone.
  [[nodiscard]] bool finish(message& answered, wire::status outcome, transfer_queue& pending, std::uint32_t epoch,
                            std::uint64_t now_ns, const completion_sink* sink);
  // The server is about to stop.
  void note_draining(std::uint32_t epoch);
  // Whether finish() has succeeded since the last call.
  [[nodiscard]] bool take_answered();

  // Requires of both: no reply is coming in, or the connection breaks off; rewind() or restart_cursor() comes next.
  void fail_all_but(std::uint32_t kept_epoch, int code, const completion_sink* sink);
  // Ends those whose deadline has passed. Returns whether there were any.
  [[nodiscard]] bool expire(std::uint64_t now_ns, const completion_sink* sink);
  void restart_cursor() { cursor_ = pool_.first(); }

  // Forgets everything: it belongs to the parent of this process.
  void reset();

  // `is_ready`: of the connection.
  void validate(std::uint32_t epoch, bool is_ready) const;

 private:
  [[nodiscard]] static int code_of(wire::status outcome);
  void build_reserved(std::uint32_t epoch, bool wants_ping, std::uint64_t now_ns);
  void fill(message& outgoing, transfer_queue& pending, std::uint32_t epoch) const;
  void encode(message& outgoing) const;
  [[nodiscard]] std::size_t encode_question(const message& outgoing, std::span<std::byte> to) const;
  void add_reserved(message& outgoing, wire::opcode op, std::uint32_t epoch, std::uint64_t now_ns);
  void fail(message& failed, int code, const completion_sink* sink);
  static void divide(const message& refused, transfer_queue& pending, const completion_sink* sink);
  void take_out(message& ended);
  // Whether those behind it in the list end later.
  [[nodiscard]] bool is_before_others(const message& one) const { return one.part_count > 0 && alone_ == 0; }

  const std::uint64_t timeout_ns_;
  control_source* control_ = nullptr;
  std::uint16_t version_ = wire::oldest_version;

  // Messages in the pool's list up to `cursor_` are sent; of that one, `cursor_bytes_`.
  message_pool pool_;
  message* cursor_ = nullptr;
  std::size_t cursor_bytes_ = 0;
  message* control_message_ = nullptr;
  message* ping_message_ = nullptr;
  std::size_t alone_ = 0;  // messages that are
  bool answered_ = false;
};

}  // namespace far::backend
