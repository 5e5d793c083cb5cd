// A flat JSON object, built in a buffer of fixed size by code that must not allocate.
#pragma once

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>

#include "base/check.h"

namespace far::control {

// How many bytes of `text` form one valid UTF-8 character; 0 when they do not.
inline std::size_t utf8_length(const unsigned char* text) {
  if (text[0] < 0x80) return 1;
  const std::size_t length = text[0] >= 0xc2 && text[0] <= 0xdf ? 2 : (text[0] & 0xf0) == 0xe0 ? 3 : 4;
  if (text[0] < 0xc2 || text[0] > 0xf4) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  // Longer than needed, half of a surrogate pair, or beyond the last character.
  if (text[0] == 0xe0 && text[1] < 0xa0) return 0;
  if (text[0] == 0xed && text[1] > 0x9f) return 0;
  if (text[0] == 0xf0 && text[1] < 0x90) return 0;
  if (text[0] == 0xf4 && text[1] > 0x8f) return 0;
  return length;
}

// Strings longer than about 1000 bytes are cut, bytes that are not UTF-8 become U+FFFD. The buffer must be large
// enough.
class json_object {
 public:
  explicit json_object(std::span<char> text) : text_(text) { put("{"); }

  void number(const char* key, std::uint64_t value) {
    begin(key);
    char digits[24];
    std::snprintf(digits, sizeof digits, "%" PRIu64, value);
    put(digits);
  }

  void string(const char* key, const char* value) {
    begin(key);
    put("\"");
    const auto* next = reinterpret_cast<const unsigned char*>(value);
    const auto* const limit = next + longest_string;
    while (*next != 0 && next < limit) next += put_character(next);
    put("\"");
  }

  // Ends the object; returns the length.
  [[nodiscard]] std::size_t finish(const char* end) {
    put("}");
    put(end);
    return used_;
  }

 private:
  static constexpr std::size_t longest_string = 1000;

  void begin(const char* key) {
    put(used_ == 1 ? "\"" : ", \"");
    put(key);
    put("\": ");
  }

  // Writes one character, escaped where JSON asks for it; returns how many bytes of the source it took.
  std::size_t put_character(const unsigned char* source) {
    const std::size_t length = utf8_length(source);
    if (length == 0) return put("\\ufffd"), 1;
    char escaped[8];
    if (*source == '"' || *source == '\\') {
      std::snprintf(escaped, sizeof escaped, "\\%c", *source);
    } else if (*source < 0x20 || *source == 0x7f) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", *source);
    } else {
      std::memcpy(escaped, source, length);
      escaped[length] = 0;
    }
    put(escaped);
    return length;
  }

  void put(const char* part) {
    const std::size_t length = std::strlen(part);
    FAR_CHECK(used_ + length <= text_.size(), "the JSON buffer is large enough for any report");
    std::memcpy(text_.data() + used_, part, length);
    used_ += length;
  }

  std::span<char> text_;
  std::size_t used_ = 0;
};

}  // namespace far::control
