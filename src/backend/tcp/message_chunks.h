// Runs of bytes that travel together: those next to one another count as one.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/tcp/message_pool.h"
#include "wire/message.h"

namespace far::backend {

// Buffers of neighbouring parts are often neighbours too.
inline void add_chunk(iovec* chunks, std::size_t* count, std::byte* buffer, std::size_t bytes) {
  if (*count > 0) {
    iovec& last = chunks[*count - 1];
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == buffer) {
      last.iov_len += bytes;
      return;
    }
  }
  chunks[(*count)++] = {buffer, bytes};
}

// `front`, then the bytes of all parts: bytes_of(i).
template <typename BytesOf>
std::uint64_t checksum_of(std::span<const std::byte> front, std::size_t parts, const BytesOf& bytes_of) {
  std::array<hash_part, 1 + wire::maximum_batch> chunks;
  std::size_t count = 0;
  if (!front.empty()) chunks[count++] = {front.data(), front.size()};
  for (std::size_t i = 0; i < parts; ++i) {
    const std::span<const std::byte> part = bytes_of(i);
    hash_part* const last = count > 0 ? &chunks[count - 1] : nullptr;
    if (last != nullptr && static_cast<const std::byte*>(last->data) + last->bytes == part.data()) {
      last->bytes += part.size();
    } else {
      chunks[count++] = {part.data(), part.size()};
    }
  }
  if (count == 1) return wire::checksum({static_cast<const std::byte*>(chunks[0].data), chunks[0].bytes});
  return wire::checksum_of_parts({chunks.data(), count});
}

}  // namespace far::backend
