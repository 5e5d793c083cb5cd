#include "base/printable.h"

#include <cstdint>

namespace far {
namespace {

// The length of the character at the front, or 0 if it is none (RFC 3629), or not to be shown.
std::size_t shown_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t first = at(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  std::uint32_t character = first & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    character = character << 6 | (at(i) & 0x3f);
  }
  const bool is_overlong = character < (bytes == 3 ? 0x800u : bytes == 4 ? 0x10000u : 0x80u);
  const bool is_surrogate = character >= 0xd800 && character < 0xe000;
  const bool is_control = character < 0xa0 || character == 0x2028 || character == 0x2029;
  const bool turns_around =
      (character >= 0x202a && character <= 0x202e) || (character >= 0x2066 && character <= 0x2069);
  return is_overlong || is_surrogate || is_control || turns_around || character > 0x10ffff ? 0 : bytes;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string shown;
  std::size_t done = 0;
  while (done < text.size()) {
    const std::size_t bytes = shown_bytes(text.substr(done));
    const std::size_t taken = bytes == 0 ? 1 : bytes;
    if (taken > most - done) return shown + "...";
    if (bytes > 0) {
      shown += text.substr(done, bytes);
    } else {
      const auto byte = static_cast<unsigned char>(text[done]);
      shown += "\\x";
      shown += digits[byte >> 4];
      shown += digits[byte & 15];
    }
    done += taken;
  }
  return shown;
}

}  // namespace far
