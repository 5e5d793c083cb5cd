// The usual queue of `shm:`: the client itself copies, to and from the memory that it shares with the server.
#pragma once

#include <cstddef>

#include "backend/immediate_channel.h"

namespace far::backend {
class shm_backend;
}

namespace far::backend::shm {

// A transfer is made, and finished, inside submit(): it takes as long as the copy.
class client_copy_channel final : public immediate_channel {
 public:
  // Requires: `owner` outlives the channel; depth > 0.
  client_copy_channel(const shm_backend& owner, std::size_t depth) : immediate_channel(depth), owner_(owner) {}

 private:
  [[nodiscard]] int serve(const request& io) override;

  const shm_backend& owner_;
};

// Copies between a slot and the buffer. Returns 0, or EIO when the server has taken the slots away.
[[nodiscard]] int copy(const shm_backend& owner, const request& io);

}  // namespace far::backend::shm
