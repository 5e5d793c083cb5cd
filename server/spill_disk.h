// Where a server's coldest blocks are while they are not in memory: a file without a name, which disappears with the
// process, however that ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace far::server {

// Used by one thread at a time. Positions, lengths and addresses of buffers are multiples of the page size.
class spill_disk {
 public:
  virtual ~spill_disk() = default;
  // All bytes, or an error. When write() returns, the device has taken them; it has not kept an error for later.
  [[nodiscard]] virtual result<void> write(std::uint64_t position, std::span<const std::byte> from) = 0;
  [[nodiscard]] virtual result<void> read(std::uint64_t position, std::span<std::byte> into) = 0;
  // The bytes are not needed any more; the file system may have their space.
  virtual void discard(std::uint64_t position, std::uint64_t bytes) = 0;
};

// A file in `directory`, with mode 0600 and at most `size_bytes` long. With `is_reserved` its space is taken now, so
// that the disk cannot be full later. Errors: no such directory, not writable, no space.
[[nodiscard]] result<std::unique_ptr<spill_disk>> open_spill_file(const std::string& directory,
                                                                  std::uint64_t size_bytes, bool is_reserved);

// Free space of the directory's file system, for this user.
[[nodiscard]] result<std::uint64_t> free_space(const std::string& directory);

}  // namespace far::server
