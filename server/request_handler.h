// Serves the requests of one connection after its handshake: one function for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "server/close_reason.h"
#include "server/counters.h"
#include "server/devices/calls.h"
#include "server/devices/function_calls.h"
#include "server/parked_request.h"
#include "server/reply_writer.h"
#include "server/store.h"
#include "server/turn.h"
#include "wire/message.h"

namespace far::server {

class request_handler {
 public:
  enum class outcome : std::uint8_t { handled, later };  // later: the message stays where it is

  // Requires: all of them outlive the handler.
  // `patience_ns`: how long a request waits for blocks that are on disk; `devices`: nullptr if there are none.
  request_handler(store& lent, loop_counters& counters, reply_writer& replies, turn& share, std::uint64_t patience_ns,
                  std::shared_ptr<device_host> devices);

  // Requires: the same session, and version of the protocol, for the rest of the connection's life.
  void serve(session& served, std::uint16_t version) {
    session_ = &served;
    version_ = version;
  }

  // Requires: serve() was called, replies have room, and reason() is none. A request that is under way comes back
  // with the same message.
  [[nodiscard]] outcome handle(const wire::header& head, std::span<const std::byte> payload, std::uint64_t now_ns);

  // Set by a request that ends the connection; flushes(): after its reply has been sent.
  [[nodiscard]] close_reason reason() const { return reason_; }
  [[nodiscard]] bool flushes() const { return flushes_; }
  // Gives a copy of the connection's socket to the process that answers the last request. False: it cannot have it.
  // Requires: reason() is handed_over.
  [[nodiscard]] bool hand_over(int socket) const {
    return devices_.hand_over(*session_, handed_to_, socket, handed_cookie_);
  }

  [[nodiscard]] bool is_under_way() const {
    return allocating_ || parked_.is_waiting() || devices_.is_waiting() || functions_.is_waiting();
  }
  // The requests from now on have waited for none before (function_calls.h).
  void begin_round() { functions_.begin_round(); }
  // Gives up what is under way: the connection leaves its session.
  void abandon();

 private:
  [[nodiscard]] outcome on_request(const wire::header& head, std::span<const std::byte> payload, std::uint64_t now_ns);
  [[nodiscard]] outcome on_read(const wire::header& head, std::span<const std::byte> payload, std::uint64_t now_ns);
  [[nodiscard]] outcome on_write(const wire::header& head, std::span<const std::byte> payload, std::uint64_t now_ns);
  [[nodiscard]] outcome on_allocate(const wire::header& head, std::span<const std::byte> payload, std::uint64_t now_ns);
  void on_free(const wire::header& head, std::span<const std::byte> payload);
  void on_capacity(const wire::header& head);
  [[nodiscard]] outcome on_call(const wire::header& head, std::span<const std::byte> payload, std::uint64_t now_ns);
  [[nodiscard]] outcome on_device_call(const wire::header& head, std::span<const std::byte> arguments,
                                       std::uint64_t now_ns);
  [[nodiscard]] outcome on_function_call(const wire::header& head, std::span<const std::byte> arguments,
                                         std::uint64_t now_ns);
  // Some of the blocks were not in memory: replies unless the request is done or has to wait.
  [[nodiscard]] parked_request::step settle(const wire::header& head, parked_request::step reached,
                                            std::uint64_t now_ns);
  void on_close(const wire::header& head);
  void reply(const wire::header& request, wire::status result, std::size_t payload_bytes = 0);
  [[nodiscard]] std::size_t pack_result(std::size_t bytes);
  void reply_not_allocated(const wire::header& request);
  void end(close_reason reason) { reason_ = reason; }

  store& store_;
  loop_counters& counters_;
  reply_writer& replies_;
  turn& turn_;
  session* session_ = nullptr;
  std::uint16_t version_ = wire::oldest_version;
  session::allocation allocation_;  // under way while allocating_
  bool allocating_ = false;
  parked_request parked_;
  device_calls devices_;
  function_calls functions_;
  std::uint64_t handed_to_ = 0;  // the device
  std::uint64_t handed_cookie_ = 0;
  const std::uint64_t patience_ns_;
  wire::batch batch_;
  close_reason reason_ = close_reason::none;
  bool flushes_ = false;
};

}  // namespace far::server
