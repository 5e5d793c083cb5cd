// Memory as x86 threads see it (x86-TSO): each thread's stores wait in a buffer of its own, first in, first out, which
// drains at any time; its loads see its own buffer first. Atomic read-modify-writes wait for the buffer to be empty.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/model/explorer.h"

namespace far::model {

// Cells of a byte. Threads that store with read-modify-writes only need no buffer: they use put() and get().
template <std::size_t Cells, std::size_t Threads, std::size_t Depth = 3>
struct tso_memory {
  struct waiting_store {
    std::uint8_t cell = 0;
    std::uint8_t value = 0;
  };
  struct buffer {
    std::uint8_t count = 0;
    waiting_store stores[Depth];
  };

  std::uint8_t cells[Cells] = {};
  buffer buffers[Threads] = {};

  [[nodiscard]] std::uint8_t get(std::size_t cell) const { return cells[cell]; }
  void put(std::size_t cell, std::uint8_t value) { cells[cell] = value; }

  // Returns false when the buffer is full: the thread cannot go on before it drains.
  [[nodiscard]] bool store(std::size_t thread, std::size_t cell, std::uint8_t value) {
    buffer& mine = buffers[thread];
    if (mine.count == Depth) return false;
    mine.stores[mine.count++] = {static_cast<std::uint8_t>(cell), value};
    return true;
  }
  [[nodiscard]] std::uint8_t load(std::size_t thread, std::size_t cell) const {
    const buffer& mine = buffers[thread];
    for (std::size_t i = mine.count; i-- > 0;) {
      if (mine.stores[i].cell == cell) return mine.stores[i].value;
    }
    return cells[cell];
  }
  [[nodiscard]] bool is_drained(std::size_t thread) const { return buffers[thread].count == 0; }
  // The oldest store reaches memory. Returns false when there is none.
  [[nodiscard]] bool drain_one(std::size_t thread) {
    buffer& mine = buffers[thread];
    if (mine.count == 0) return false;
    cells[mine.stores[0].cell] = mine.stores[0].value;
    for (std::size_t i = 1; i < mine.count; ++i) mine.stores[i - 1] = mine.stores[i];
    mine.stores[--mine.count] = {};
    return true;
  }
  // The effect of membarrier(2) on one thread, at some moment while the call lasts.
  void fence(std::size_t thread) {
    while (drain_one(thread)) {
    }
  }
};

// The actor that drains a thread's buffer. `Memory` is the state's member.
template <typename State, auto Memory, std::size_t Thread>
[[nodiscard]] actor<State> buffer_of(const char* name) {
  return {name, [](State& s) { return (s.*Memory).drain_one(Thread) ? "drains a store" : nullptr; },
          [](const State& s) { return (s.*Memory).is_drained(Thread); }};
}

}  // namespace far::model
