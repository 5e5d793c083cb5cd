// The usual queue of `shm:`: the client itself copies, to and from the memory that it shares with the server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/file/completion_queue.h"

namespace far::backend {
class shm_backend;
}

namespace far::backend::shm {

// A transfer is made, and finished, inside submit(): it takes as long as the copy.
class memory_channel final : public channel {
 public:
  // Requires: `owner` outlives the channel; depth > 0.
  memory_channel(const shm_backend& owner, std::size_t depth) : owner_(owner), depth_(depth), ready_(depth) {}
  ~memory_channel() override;

  [[nodiscard]] std::size_t submit(std::span<const request> batch) override;
  [[nodiscard]] std::size_t poll(std::span<completion> done) override;
  void wait(std::uint64_t /*timeout_ns*/) override {}  // what was submitted is complete
  [[nodiscard]] std::size_t in_flight() const override { return in_flight_; }
  [[nodiscard]] int event_descriptor() const override;

 private:
  void signal() const;

  const shm_backend& owner_;
  const std::size_t depth_;
  std::size_t in_flight_ = 0;
  completion_queue ready_;
  mutable int event_ = -1;
};

// Copies between a slot and the buffer. Returns 0, or EIO when the server has taken the slots away.
[[nodiscard]] int copy(const shm_backend& owner, const request& what);

}  // namespace far::backend::shm
