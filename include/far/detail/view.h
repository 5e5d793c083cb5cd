// What a dereference looks at in a runtime: flat arrays by address.
#pragma once

#include <cstddef>
#include <cstdint>

#include "far/detail/word.h"

namespace far::detail {

struct heap_view {
  const std::uint8_t* state_bytes = nullptr;  // by page number (address / page size): whether it is resident
  const std::uint8_t* touched = nullptr;      // by page number: used since the evictor last looked
  const std::uint8_t* cards = nullptr;        // by address / 128: a bit for each unit
  std::uint8_t byte_of_resident = 0;

  // Whether nothing is to be done for a dereference of this word but to hold its page. Requires: the page is held.
  [[nodiscard]] bool is_ready(std::uint64_t value) const {
    const std::uintptr_t object = word::address(value);
    const std::uint64_t page = word::page(value);
    const bool marked =
        (__atomic_load_n(&cards[object / (8 * unit_bytes)], __ATOMIC_RELAXED) >> (object / unit_bytes % 8) & 1) != 0;
    return __atomic_load_n(&state_bytes[page], __ATOMIC_ACQUIRE) == byte_of_resident && marked &&
           __atomic_load_n(&touched[page], __ATOMIC_RELAXED) != 0;
  }
};

}  // namespace far::detail
