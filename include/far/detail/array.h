// Access to arrays of run-time size: the common part of far::unique_ptr<T[]> and far::shared_ptr<T[]>.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <span>

#include "far/detail/bounds.h"
#include "far/detail/pointer.h"
#include "far/scope.h"

namespace far::detail {

// Of a null pointer: no elements.
template <typename T>
[[nodiscard]] std::span<T> all_elements(const scope& in, owner_word& owner, bool write, bool lasting) {
  if (owner.load(std::memory_order_relaxed) == 0) return {};
  std::byte* const first = in.reach(owner, write, lasting);
  return {std::launder(reinterpret_cast<T*>(first)), bytes_of(owner) / sizeof(T)};
}

// The offset of an element. For an index that no array has, an offset that no array has, either.
template <typename T>
[[nodiscard]] constexpr std::size_t offset_of_element(std::size_t index, std::size_t after = 0) {
  constexpr std::size_t most = (std::size_t{1} << 47) / sizeof(T);
  return (index > most || after > most ? most : index + after) * sizeof(T);
}

template <typename T>
[[nodiscard]] T& element(const scope& in, owner_word& owner, std::size_t index, bool write, bool lasting) {
  return *std::launder(
      reinterpret_cast<T*>(in.reach_part(owner, offset_of_element<T>(index), sizeof(T), write, lasting)));
}

template <typename T>
[[nodiscard]] std::size_t count_elements(owner_word& owner, bool lasting = true) {
  const std::uint64_t value = owner.load(std::memory_order_relaxed);
  if (value == 0) return 0;
  if (word::is_huge(value)) return bytes_of(owner) / sizeof(T);
  const scope here(runtime_of(owner));
  static_cast<void>(here.reach(owner, false, lasting));
  return bytes_of(owner) / sizeof(T);
}

// Calls `copy` for stretches of at most 64 KiB, which stay in place during the call. Its arguments are the address of
// the first element in the far heap, the number of elements before it, and the number of elements in the stretch.
// Throws std::out_of_range.
template <typename T, typename Copy>
void for_each_stretch(owner_word& owner, std::size_t first, std::size_t count, bool write, bool lasting, Copy copy) {
  require_range(first, count, count_elements<T>(owner, lasting));
  constexpr std::size_t most = std::max<std::size_t>((std::size_t{64} << 10) / sizeof(T), 1);
  for (std::size_t done = 0; done < count;) {
    const std::size_t now = std::min(most, count - done);
    const scope here(runtime_of(owner));
    std::byte* const at = here.reach_part(owner, offset_of_element<T>(first, done), now * sizeof(T), write, lasting);
    copy(std::launder(reinterpret_cast<T*>(at)), done, now);
    done += now;
  }
}

template <typename T>
void copy_out(owner_word& owner, std::size_t first, std::span<T> into, bool lasting) {
  for_each_stretch<T>(owner, first, into.size(), false, lasting,
                      [&](const T* from, std::size_t before, std::size_t count) {
                        std::copy_n(from, count, into.begin() + static_cast<std::ptrdiff_t>(before));
                      });
}

template <typename T>
void copy_in(owner_word& owner, std::size_t first, std::span<const T> from, bool lasting) {
  for_each_stretch<T>(owner, first, from.size(), true, lasting, [&](T* into, std::size_t before, std::size_t count) {
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(before), count, into);
  });
}

}  // namespace far::detail
