// A request on its way through a connection.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace far::backend {

struct transfer;

// Receives the end of a transfer.
class completion_sink {
 public:
  virtual ~completion_sink() = default;

  // `sink`: the one for which the connection was being advanced, maybe another one, maybe nullptr. Called with the
  // connection's lock held; takes no lock of a connection.
  virtual void complete(transfer& ended, const completion_sink* sink) = 0;
};

// Lives in its channel, from submit until its completion is polled. A long one travels in several messages. While it is
// on its way, it belongs to the connection's lock.
struct transfer {
  request io;
  completion_sink* owner = nullptr;
  transfer* next = nullptr;  // of those that wait for a message
  std::uint64_t deadline_ns = 0;
  std::uint64_t placed_bytes = 0;  // have been put into messages
  std::uint32_t outstanding = 0;   // messages that hold a part of it
  std::uint32_t epoch = 0;         // of the session in which its slots were allocated
  std::uint32_t lane = 0;          // which of the channel's connections it takes
  int error_code = 0;
  bool is_alone = false;  // it shares messages with no other: one that did was refused

  [[nodiscard]] bool placed() const { return placed_bytes == io.length_bytes; }
};

// A part of it that was on its way has ended. `code`: 0, or why it failed.
inline void finish_part(transfer& owner, int code, const completion_sink* sink) {
  if (code != 0) owner.error_code = code;
  if (--owner.outstanding == 0 && owner.placed()) owner.owner->complete(owner, sink);
}

}  // namespace far::backend
