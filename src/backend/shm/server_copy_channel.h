// A queue of `shm:...?copy=server`: requests go through the rings of a connection of its own, and the server copies
// between the slots and fragments of the connection's payload area.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/completion_queue.h"
#include "backend/shm/connection.h"
#include "platform/local_memory.h"

namespace far::backend {
class shm_backend;
}

namespace far::backend::shm {

// A transfer travels in fragments of up to 64 KiB, many at a time. When the connection ends while the memory is still
// there, the channel goes on by copying itself.
class server_copy_channel final : public channel {
 public:
  // Requires: `owner` outlives the channel; `through` is ready; depth > 0.
  server_copy_channel(const shm_backend& owner, std::unique_ptr<connection> through, std::size_t depth);
  ~server_copy_channel() override;

  [[nodiscard]] std::size_t submit(std::span<const request> batch) override;
  [[nodiscard]] std::size_t poll(std::span<completion> done) override;
  void wait(std::uint64_t timeout_ns) override;
  [[nodiscard]] std::size_t in_flight() const override { return in_flight_; }

 private:
  struct transfer {
    request io;
    std::uint32_t sent_bytes = 0;
    std::uint32_t fragments_out = 0;
    int error_code = 0;
    std::uint32_t next = 0;  // in the list of free ones, or of those not sent completely
  };
  struct fragment {
    std::uint32_t transfer = 0;
    std::uint32_t offset_bytes = 0;  // in its buffer
    std::uint32_t length_bytes = 0;  // 0: not on its way
  };

  void send();
  void send_fragment(std::uint32_t index, transfer& owner);
  void receive();
  void finish(std::uint32_t index);
  void copy_all_that_is_left();

  const shm_backend& owner_;
  std::unique_ptr<connection> through_;
  const std::size_t depth_;
  std::size_t in_flight_ = 0;
  completion_queue ready_;
  std::vector<transfer, platform::local_allocator<transfer>> transfers_;
  std::vector<std::uint32_t, platform::local_allocator<std::uint32_t>> idle_;
  // To be sent, in order: a ring of indices.
  std::vector<std::uint32_t, platform::local_allocator<std::uint32_t>> unsent_;
  std::size_t unsent_head_ = 0;
  std::size_t unsent_count_ = 0;
  std::array<fragment, wire::ring_length> fragments_{};
  std::array<std::uint32_t, wire::ring_length> idle_fragments_{};
  std::size_t idle_fragment_count_ = 0;
  unsigned empty_polls_ = 0;
};

}  // namespace far::backend::shm
