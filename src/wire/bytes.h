// Little-endian numbers in unaligned bytes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>

namespace far::wire {

static_assert(std::endian::native == std::endian::little, "wire/bytes.h: swap bytes for this architecture");

template <typename T>
[[nodiscard]] T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace far::wire
