// Finds the allocation that held an address at a given time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace far::trace {

// Follows allocations and releases in the order of time. Allocations may lie within each other (a mapping, and what an
// allocator cut from it); the answer is the nearest one: the highest start whose allocation holds the address.
class live_allocations {
 public:
  static constexpr std::size_t none = SIZE_MAX;

  // `number` is what find() gives back. A second allocation at a start replaces the first, whose release was missed.
  void add(std::uint64_t address, std::uint64_t bytes, std::size_t number) { live_[address] = {bytes, number}; }
  void remove(std::uint64_t address) { live_.erase(address); }

  [[nodiscard]] std::size_t find(std::uint64_t address) const;

 private:
  struct allocation {
    std::uint64_t bytes = 0;
    std::size_t number = none;
  };
  std::map<std::uint64_t, allocation> live_;  // by start
};

}  // namespace far::trace
