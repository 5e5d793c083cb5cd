// The client through which `farheap-bench transport` measures: a queue of transfers of one size, on a far tier or on a
// Redis server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace far::bench {

class transport_client {
 public:
  virtual ~transport_client() = default;

  // Starts a transfer of the client's size for each item, all together; `tags` come back from finish(). Requires: no
  // more outstanding than the depth it was opened with.
  virtual void start(bool write, std::span<const std::uint32_t> items, std::span<const std::uint32_t> tags) = 0;

  // Waits until at least one transfer has ended, and returns the tags of those that have. Stops the program when one
  // failed or brought other bytes than were written.
  [[nodiscard]] virtual std::size_t finish(std::span<std::uint32_t> tags) = 0;
};

// `items` places of `bytes` each, all of them written; at most `depth` transfers outstanding.
struct transport_shape {
  std::size_t bytes = 0;
  std::size_t items = 0;
  std::size_t depth = 0;
};

// A far tier by its URI.
[[nodiscard]] result<std::unique_ptr<transport_client>> open_far_client(const std::string& uri,
                                                                        const transport_shape& shape);

// A Redis server on loopback: GET and SET, pipelined to the depth. Fails when this build has no hiredis.
[[nodiscard]] result<std::unique_ptr<transport_client>> open_redis_client(int port, const transport_shape& shape);

// The word that item `item` begins with.
[[nodiscard]] constexpr std::uint64_t transport_mark(std::uint32_t item) {
  return 0x9e3779b97f4a7c15u * (item + 1u);
}

}  // namespace far::bench
