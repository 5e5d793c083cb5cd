// Reads the forms of numbers that unwind tables use. Never goes past the end: then it has failed, and yields zeros.
#pragma once

#include <cstdint>
#include <cstring>

#include "trace/record/frame_table.h"

namespace far::trace {

class table_cursor {
 public:
  explicit table_cursor(byte_range bytes) noexcept : at_(bytes.begin), end_(bytes.end) {}

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] bool done() const noexcept { return failed_ || at_ >= end_; }
  [[nodiscard]] const std::uint8_t* place() const noexcept { return at_; }
  [[nodiscard]] byte_range rest() const noexcept { return {at_, end_}; }

  template <typename T>
  [[nodiscard]] T number() noexcept {
    T value{};
    if (const std::uint8_t* const from = skip(sizeof value)) std::memcpy(&value, from, sizeof value);
    return value;
  }

  // Returns where the skipped bytes begin, or nullptr when there are not as many.
  const std::uint8_t* skip(std::uint64_t bytes) noexcept {
    if (failed_ || bytes > static_cast<std::uint64_t>(end_ - at_)) {
      failed_ = true;
      return nullptr;
    }
    const std::uint8_t* const from = at_;
    at_ += bytes;
    return from;
  }

  [[nodiscard]] std::uint64_t uleb() noexcept {
    unsigned bits = 0;
    return leb(&bits);
  }

  [[nodiscard]] std::int64_t sleb() noexcept {
    unsigned bits = 0;
    const std::uint64_t value = leb(&bits);
    const bool negative = bits > 0 && bits < 64 && (value >> (bits - 1) & 1) != 0;
    return static_cast<std::int64_t>(negative ? value | ~std::uint64_t{0} << bits : value);
  }

  [[nodiscard]] byte_range block() noexcept {
    const std::uint64_t bytes = uleb();
    const std::uint8_t* const from = skip(bytes);
    return {from, from == nullptr ? nullptr : from + bytes};
  }

  // An address in the form `encoding` (DW_EH_PE_*). `data` is what DW_EH_PE_datarel counts from.
  [[nodiscard]] std::uint64_t address(std::uint8_t encoding, std::uint64_t data = 0) noexcept {
    constexpr std::uint8_t relative_to_place = 0x10;
    constexpr std::uint8_t relative_to_data = 0x30;
    const std::uint64_t here = reinterpret_cast<std::uint64_t>(at_);
    const std::uint64_t value = of_form(encoding & 0x0f);
    switch (encoding & 0x70) {
      case 0: return value;
      case relative_to_place: return value + here;
      case relative_to_data: return value + data;
      default: failed_ = true; return 0;
    }
  }

 private:
  [[nodiscard]] std::uint64_t leb(unsigned* bits) noexcept {
    std::uint64_t value = 0;
    while (true) {
      const auto byte = number<std::uint8_t>();
      if (failed_) return 0;
      if (*bits < 64) value |= std::uint64_t{byte & 0x7fU} << *bits;
      *bits += 7;
      if ((byte & 0x80) == 0) return value;
    }
  }

  [[nodiscard]] std::uint64_t of_form(std::uint8_t form) noexcept {
    switch (form) {
      case 0x00:
      case 0x04:
      case 0x0c: return number<std::uint64_t>();
      case 0x01: return uleb();
      case 0x02: return number<std::uint16_t>();
      case 0x03: return number<std::uint32_t>();
      case 0x09: return static_cast<std::uint64_t>(sleb());
      case 0x0a: return static_cast<std::uint64_t>(std::int64_t{number<std::int16_t>()});
      case 0x0b: return static_cast<std::uint64_t>(std::int64_t{number<std::int32_t>()});
      default: failed_ = true; return 0;
    }
  }

  const std::uint8_t* at_;
  const std::uint8_t* end_;
  bool failed_ = false;
};

}  // namespace far::trace
