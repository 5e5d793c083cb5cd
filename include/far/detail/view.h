// The part of a runtime that a dereference reads.
#pragma once

#include <atomic>
#include <cstdint>

#include "far/detail/look.h"
#include "far/detail/word.h"

namespace far::detail {

// The use that a dereference may make of a page at once. Above `not_ready`, the page is resident, or comes back to its
// place at the first access; and it stays until every scope that is open now has ended, unless memory is short.
enum class readiness : std::uint8_t {
  not_ready,
  watched,   // ... but the slow path is to note which objects are used
  readable,  // use it
  writable,  // use it, and a write does not hit the hardware guard, which costs many times as much
};

struct heap_view {
  const std::uint8_t* ready = nullptr;  // a `readiness` by page number (address / page size)

  [[nodiscard]] bool is_ready(std::uint64_t word_value, bool write) const {
    return is_page_ready(word::page(word_value), write);
  }
  [[nodiscard]] bool is_page_ready(std::uint64_t number, bool write) const {
    return is_at_least(ready[number], least_for(write));
  }
  // Whether the page of a word's object is ready, and the word is still the same after that.
  [[nodiscard]] bool is_ready_still(const std::atomic<std::uint64_t>& word, std::uint64_t value, bool write) const {
    return is_at_least_and_same(ready[word::page(value)], least_for(write), word, value);
  }

 private:
  [[nodiscard]] static constexpr std::uint8_t least_for(bool write) {
    return static_cast<std::uint8_t>(write ? readiness::writable : readiness::readable);
  }
};

}  // namespace far::detail
