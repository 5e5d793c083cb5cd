// A request some of whose blocks are on disk. It goes on where it stopped each time that it is tried again, so it needs
// only one block in memory at a time, and clients whose blocks do not fit together all make progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/store.h"
#include "wire/message.h"

namespace far::server {

class parked_request {
 public:
  enum class step : std::uint8_t {
    done,
    wait,           // try again later
    not_allocated,  // the session does not hold all of the blocks
    unreadable,     // the disk has not returned a block
  };

  [[nodiscard]] bool is_waiting() const { return since_ns_ != 0; }
  [[nodiscard]] std::uint64_t since_ns() const { return since_ns_; }

  // Each is called with the same batch until it does not return `wait`. The bytes of a read are in gathered() then,
  // until reset().
  [[nodiscard]] step read(session& client, const wire::batch& wanted, std::uint64_t now_ns);
  [[nodiscard]] step write(session& client, const wire::batch& wanted, std::uint64_t now_ns);
  // Until all blocks are in memory at the same time.
  [[nodiscard]] step bring_all(session& client, const wire::batch& wanted, std::uint64_t now_ns);
  [[nodiscard]] std::span<const std::byte> gathered() const { return bytes_; }
  void reset();

 private:
  template <typename Use>
  [[nodiscard]] step advance(session& client, const wire::batch& wanted, Use use);
  [[nodiscard]] step finish(step reached, std::uint64_t now_ns);

  std::uint64_t since_ns_ = 0;
  std::size_t done_bytes_ = 0;
  std::vector<std::byte> bytes_;  // of a read
};

}  // namespace far::server
