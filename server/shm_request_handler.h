// Serves the requests of one connection over shared memory after its handshake: one function for each.
//
// A client may change the memory that it shares with us at any moment, to anything. So positions are checked, entries
// are copied out before they are read, and we never read our own writes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "server/close_reason.h"
#include "server/counters.h"
#include "server/shm_memory.h"
#include "server/shm_rings.h"
#include "server/store.h"
#include "wire/ring_file.h"

namespace far::server {

// Used by one thread.
class shm_request_handler {
 public:
  // `socket`: for bells. Requires: all of them outlive the handler; `memory` is the session's.
  shm_request_handler(loop_counters& counters, shm_rings& rings, session& served, shm_memory& memory, int socket);

  // Handles requests, up to the turn's share. Returns whether there was anything to do. Requires: reason() is none.
  bool work(std::uint64_t now_ns);

  // An allocation waits for freed blocks, or for its next step; or requests wait for their tenant's limits.
  [[nodiscard]] bool is_waiting() const { return allocating_ || delayed_until_ns_ != 0; }
  // Gives it up: the connection leaves its session.
  void abandon();

  // Set by a request that ends the connection.
  [[nodiscard]] close_reason reason() const { return reason_; }

 private:
  [[nodiscard]] bool is_delayed(std::uint64_t now_ns);
  void handle(const wire::ring_request& asked);
  void on_transfer(const wire::ring_request& asked);
  void on_allocate(const wire::ring_request& asked);
  bool go_on_allocating();
  void on_free(const wire::ring_request& asked);
  void on_call(const wire::ring_request& asked);
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

  std::unique_ptr<std::byte[]> call_result_;  // allocated by the first call
};

}  // namespace far::server
