// What tests of backends write: each byte of the store has a value of its own after each write.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace far::backend {

// The eight bytes of the store from number 8 * `number` on after the write of generation `generation`.
inline std::uint64_t content(std::uint64_t number, std::uint64_t generation) {
  std::uint64_t mixed = (number + 1) * 0x9e3779b97f4a7c15u + generation * 0xbf58476d1ce4e5b9u;
  mixed ^= mixed >> 29;
  return mixed * 0x94d049bb133111ebu;
}

// As they are from byte `address` on. Where nothing is optimized, byte by byte takes most of a test's time.
inline void fill(std::span<std::byte> bytes, std::uint64_t address, std::uint64_t generation) {
  for (std::size_t done = 0, count = 0; done < bytes.size(); done += count) {
    const std::size_t skipped = (address + done) % 8;
    const std::uint64_t word = content((address + done) / 8, generation) >> 8 * skipped;
    count = std::min(8 - skipped, bytes.size() - done);
    std::memcpy(bytes.data() + done, &word, count);
  }
}

}  // namespace far::backend
