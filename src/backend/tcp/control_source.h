// The requests to a store other than transfers: blocks to allocate and to free.
#pragma once

#include <cstdint>

#include "wire/message.h"

namespace far::backend {

struct control_request {
  wire::opcode op = wire::opcode::allocate;
  wire::block_range blocks{};
};

// Is asked for the next request whenever the one before is done. All are called with the connection's lock held.
class control_source {
 public:
  virtual ~control_source() = default;
  // False: nothing to ask for in this epoch now.
  [[nodiscard]] virtual bool next(std::uint32_t epoch, std::uint64_t now_ns, control_request* into) = 0;
  virtual void done(const control_request& request, std::uint32_t epoch, wire::status outcome,
                    std::uint64_t now_ns) = 0;
  // The server is about to stop.
  virtual void draining(std::uint32_t epoch) = 0;
  // Whether anything is stored in the blocks.
  [[nodiscard]] virtual bool stores_anything() const { return true; }
};

}  // namespace far::backend
