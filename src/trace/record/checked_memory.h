// Reads memory of this process that may not be there: an address out of a damaged stack, or far memory that is not
// resident. Neither faults. For signal handlers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace far::trace {

class checked_memory {
 public:
  // Reads eight bytes at `address`; false when they cannot be read.
  [[nodiscard]] bool read(std::uint64_t address, std::uint64_t* value) noexcept;

 private:
  // A stack is read upwards, so one window serves most of an unwinding.
  static constexpr std::size_t window_bytes = 8192;

  [[nodiscard]] bool move_window(std::uint64_t address) noexcept;

  std::uint64_t start_ = 0;
  std::uint64_t bytes_ = 0;
  std::array<std::byte, window_bytes> window_;
};

}  // namespace far::trace
