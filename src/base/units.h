// Pages, bytes and durations: constants, parsing of what users write, formatting of what they read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace far {

inline constexpr unsigned page_shift = 12;
inline constexpr std::size_t page_bytes = std::size_t{1} << page_shift;

inline constexpr std::uint64_t kib = std::uint64_t{1} << 10;
inline constexpr std::uint64_t mib = std::uint64_t{1} << 20;
inline constexpr std::uint64_t gib = std::uint64_t{1} << 30;
inline constexpr std::uint64_t tib = std::uint64_t{1} << 40;

[[nodiscard]] constexpr std::uint64_t pages_for(std::uint64_t bytes) {
  return (bytes + page_bytes - 1) >> page_shift;
}
[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t power_of_two) {
  return (value + power_of_two - 1) & ~(power_of_two - 1);
}
[[nodiscard]] constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t power_of_two) {
  return value & ~(power_of_two - 1);
}

// "4096", "64K", "512MiB", "1.5G", "2gb": bytes, in powers of 1024. Errors name the text and show a right example.
[[nodiscard]] result<std::uint64_t> parse_size(std::string_view text);

// "25%", "0.5%": a share, 0.25 and 0.005. Errors: none above 0, or above `largest`; they name the text and show a right
// example.
[[nodiscard]] result<double> parse_share(std::string_view text, double largest = 1);

// "5us", "250ns", "1.5ms", "2s": nanoseconds.
[[nodiscard]] result<std::uint64_t> parse_duration_ns(std::string_view text);

// 1610612736 -> "1.50 GiB".
[[nodiscard]] std::string format_size(std::uint64_t bytes);

// 1234567 -> "1.23 ms".
[[nodiscard]] std::string format_duration(std::uint64_t nanoseconds);

}  // namespace far
