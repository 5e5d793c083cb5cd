// Results of calls, packed by zstd. From version 5 on, a server sends one so when that makes it shorter
// (docs/decisions/0127-packed-answers.md): marks of a tenth of some numbers, for example, take half of the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace far::wire {

inline constexpr std::uint16_t first_version_that_packs = 5;
// What is sent, at most, so that a client can receive it as a whole; and what it says, unpacked.
inline constexpr std::size_t most_packed_bytes = std::size_t{64} << 10;
inline constexpr std::size_t most_unpacked_bytes = std::size_t{256} << 10;

// For one thread at a time. Its working memory is local, and taken when it is first used.
class packer {
 public:
  packer() = default;
  ~packer();
  packer(const packer&) = delete;
  packer& operator=(const packer&) = delete;

  // Returns the length of what then stands in `into`; 0: `from` stays as it is, because it would not get shorter by a
  // sixteenth. Requires: they do not overlap.
  [[nodiscard]] std::size_t pack(std::span<const std::byte> from, std::span<std::byte> into);

 private:
  std::byte* memory_ = nullptr;
  std::size_t memory_bytes_ = 0;
  void* context_ = nullptr;  // of zstd, in the memory
};

// Likewise.
class unpacker {
 public:
  unpacker() = default;
  ~unpacker();
  unpacker(const unpacker&) = delete;
  unpacker& operator=(const unpacker&) = delete;

  // The bytes, which stay until the next call; none: `packed`, which may be anything, is not `bytes` bytes. Requires:
  // bytes is from 1 to most_unpacked_bytes.
  [[nodiscard]] std::span<const std::byte> unpack(std::span<const std::byte> packed, std::size_t bytes);

 private:
  std::byte* memory_ = nullptr;  // that of zstd, and room for the bytes
  std::size_t memory_bytes_ = 0;
  void* context_ = nullptr;
};

}  // namespace far::wire
