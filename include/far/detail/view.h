// The part of a runtime that a dereference reads: flat arrays, indexed by address.
#pragma once

#include <cstddef>
#include <cstdint>

#include "far/detail/word.h"

namespace far::detail {

struct heap_view {
  // By page number: not 0: resident, and used since the evictor last looked; above 1: and writable.
  const std::uint8_t* ready = nullptr;
  const std::uint8_t* cards = nullptr;  // by address / 128: a bit for each unit

  // Whether nothing is to be done for a dereference of this word but to hold its page. Requires: the page is held.
  [[nodiscard]] bool is_ready(std::uint64_t value, bool write) const {
    const std::uintptr_t object = word::address(value);
    const unsigned card_byte = __atomic_load_n(&cards[object / (8 * unit_bytes)], __ATOMIC_RELAXED);
    return __atomic_load_n(&ready[word::page(value)], __ATOMIC_ACQUIRE) > unsigned{write} &&
           (card_byte >> (object / unit_bytes % 8) & 1) != 0;
  }
};

}  // namespace far::detail
