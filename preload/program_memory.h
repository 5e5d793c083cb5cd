// Pointers that the program gives to a call which is served here: where they are bad, the call must fail with EFAULT,
// as the kernel's does, and not end the program.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>

#include "pager/pager.h"

namespace far::preload {

// Whether the program could read all of this memory. Far memory must be resident. The kernel is asked by a change of
// the signal mask that names no change, a call that no filter of a program can do without.
[[nodiscard]] bool is_readable(const void* memory, std::size_t bytes) noexcept;

// The same of memory that may be far, and remote.
[[nodiscard]] bool may_be_read(const pager::pager& pager, const std::byte* memory, std::size_t bytes);

// What is at a pointer of the program, if that is good: where it is not, the kernel is to say so. Far memory must be
// resident.
template <typename value>
[[nodiscard]] std::optional<value> copy_of(const value* place) noexcept {
  if (!is_readable(place, sizeof(value))) return std::nullopt;
  value copy{};
  std::memcpy(&copy, place, sizeof copy);
  return copy;
}

// Copies memory of the program, far or not, as the kernel does: false means EFAULT.
[[nodiscard]] bool load_bytes(void* copy, const void* place, std::size_t bytes) noexcept;
// The same in the other direction. At least 8 bytes; some may have been written where it fails.
[[nodiscard]] bool store_bytes(void* place, const void* from, std::size_t bytes) noexcept;

template <typename value>
[[nodiscard]] std::optional<value> load(const value* place) noexcept {
  value copy{};
  if (!load_bytes(&copy, place, sizeof copy)) return std::nullopt;
  return copy;
}
template <typename value>
[[nodiscard]] bool store(value* place, const value& from) noexcept {
  return store_bytes(place, &from, sizeof from);
}

// Whether the program could read a text and its end.
[[nodiscard]] bool is_readable_text(const char* text) noexcept;

}  // namespace far::preload
