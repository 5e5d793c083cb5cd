// Serves the requests of one connection over shared memory after its handshake: one function for each.
//
// A client may change the memory that it shares with us at any moment, to anything. So positions are checked, entries
// are copied out before they are read, and we never read our own writes back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "server/close_reason.h"
#include "server/counters.h"
#include "server/devices/calls.h"
#include "server/shm_memory.h"
#include "server/shm_rings.h"
#include "server/store.h"
#include "server/turn.h"
#include "wire/message.h"
#include "wire/ring_file.h"

namespace far::server {

// Used by one thread.
class shm_request_handler {
 public:
  // `socket`: for bells; `devices`: nullptr if there are none. Requires: all of them outlive the handler; `memory` is
  // the session's.
  shm_request_handler(loop_counters& counters, shm_rings& rings, session& served, shm_memory& memory, int socket,
                      std::shared_ptr<device_host> devices);

  // Handles requests, up to the turn's share. Returns whether there was anything to do. Requires: reason() is none.
  bool work(std::uint64_t now_ns);

  // When there may be something to do although nobody rings: an allocation waits for freed blocks, or for its next
  // step; a call waits for its device; or requests wait for their tenant's limits. turn::never: nothing waits.
  [[nodiscard]] std::uint64_t due_at_ns(std::uint64_t now_ns) const;
  [[nodiscard]] bool is_waiting() const { return is_busy() || delayed_until_ns_ != 0; }
  // Gives it up: the connection leaves its session.
  void abandon();

  // Set by a request that ends the connection.
  [[nodiscard]] close_reason reason() const { return reason_; }

 private:
  [[nodiscard]] bool is_delayed(std::uint64_t now_ns);
  // Something is under way that must end before the next request.
  [[nodiscard]] bool is_busy() const { return allocating_ || calling_; }
  [[nodiscard]] std::uint64_t moved_bytes() const;
  void handle(const wire::ring_request& asked);
  void on_transfer(const wire::ring_request& asked);
  void on_allocate(const wire::ring_request& asked);
  bool go_on_allocating();
  void on_free(const wire::ring_request& asked);
  void on_call(const wire::ring_request& asked);
  void call_operation(const wire::ring_request& asked, const wire::call_request& call, std::span<std::byte> shared);
  bool go_on_calling(std::uint64_t now_ns);
  void reply(const wire::ring_request& asked, wire::status result, wire::ring_reply with = {});
  [[nodiscard]] bool names_blocks(const wire::ring_request& asked) const;
  void end(close_reason reason);

  loop_counters& counters_;
  shm_rings& rings_;
  session& session_;
  shm_memory& memory_;
  int socket_;
  close_reason reason_ = close_reason::none;

  std::uint64_t delayed_until_ns_ = 0;  // by the tenant's limits; 0: it is not

  // The allocation under way, block by block.
  bool allocating_ = false;
  wire::ring_request wanted_;
  std::uint64_t granted_ = 0;
  session::allocation step_;

  // The call of a device under way: its arguments are in `call_`, and it is looked at again at this time.
  device_calls devices_;
  bool calling_ = false;
  std::uint64_t call_again_at_ns_ = 0;

  struct call_bytes {
    std::array<std::byte, wire::maximum_payload_bytes> asked;
    std::array<std::byte, wire::maximum_payload_bytes> result;
  };
  std::unique_ptr<call_bytes> call_;  // allocated by the first call
};

}  // namespace far::server
