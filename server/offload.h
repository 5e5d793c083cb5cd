// Operations that run in the server, beside the data. Clients request them by name (`call`).
//
// To add one: a class like checksum_ranges in offload.cc, and a line in built_in_offloads().
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "server/store.h"
#include "wire/message.h"

namespace far::server {

class offload {
 public:
  struct outcome {
    wire::status result = wire::status::ok;  // ok, call_failed, or not_allocated
    std::size_t result_bytes = 0;
    std::size_t touched_bytes = 0;  // of the session's slots; the event loop counts them as work
    bool is_worth_packing = false;  // the result: it may have many zeros, or bytes that are alike
  };

  virtual ~offload() = default;

  // At most 31 bytes, without spaces.
  [[nodiscard]] virtual std::string_view name() const = 0;

  // The slots that run() would touch, so that the caller can bring them into memory. False: it refuses the arguments.
  [[nodiscard]] virtual bool ranges_of(std::span<const std::byte> arguments, wire::batch* into) const = 0;

  // Runs on an event loop, between two quiescent states: it neither waits, nor allocates, nor touches more than about a
  // mebibyte. `arguments` come from the client and may be anything. Requires: `result` has room for a whole payload.
  [[nodiscard]] virtual outcome run(const session& data, std::span<const std::byte> arguments,
                                    std::span<std::byte> result) const = 0;
};

// Every operation of this server. They live as long as the process.
[[nodiscard]] std::span<const offload* const> built_in_offloads();

// The operation of that name, or nullptr.
[[nodiscard]] const offload* find_offload(std::string_view name);

}  // namespace far::server
