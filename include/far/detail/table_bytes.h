// Keys and values of a remote hash table as bytes (far/remote_table.h).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "far/device.h"
#include "far/string.h"

namespace far::detail {

// Types whose bytes are the same on the server: numbers and the like, and far::string.
template <typename T>
concept table_type = std::is_same_v<T, string> || std::is_trivially_copyable_v<T>;
// Equal keys have equal bytes.
template <typename T>
concept table_key = std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>;

// A copy of a value outside the far heap.
template <table_type T>
using table_copy = std::conditional_t<std::is_same_v<T, string>, std::string, T>;

// `given` is a T, or what a T is constructed from.
template <table_type T, typename Q>
[[nodiscard]] std::string to_table(const Q& given) {
  if constexpr (std::is_same_v<Q, string>) {
    return given.str();
  } else if constexpr (std::is_same_v<T, string>) {
    return std::string(std::string_view(given));
  } else {
    const T value(given);
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), std::addressof(value), sizeof value);
    return bytes;
  }
}

// Throws device_error `refused` when the bytes are no T.
template <table_type T>
[[nodiscard]] table_copy<T> from_table(std::string_view bytes) {
  if constexpr (std::is_same_v<T, string>) {
    return std::string(bytes);
  } else {
    std::array<std::byte, sizeof(T)> room;
    if (bytes.size() != room.size()) {
      throw device_error(device_error::reason::refused, "the table has a value of " + std::to_string(bytes.size()) +
                                                            " bytes, and its type here has " +
                                                            std::to_string(room.size()));
    }
    std::memcpy(room.data(), bytes.data(), room.size());
    return std::bit_cast<T>(room);
  }
}

template <typename Number>
void append_number(Number number, std::string& to) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}
inline void append_text(std::string_view text, std::string& to) {
  append_number(static_cast<std::uint32_t>(text.size()), to);
  to.append(text);
}
[[nodiscard]] inline std::size_t text_bytes(std::string_view text) {
  return sizeof(std::uint32_t) + text.size();
}

// Reads a result of a table. Throws device_error `refused` when it is cut short: the plugin is another one.
class table_result {
 public:
  explicit table_result(std::span<const std::byte> bytes)
      : left_(reinterpret_cast<const char*>(bytes.data()), bytes.size()) {}

  template <typename Number>
  [[nodiscard]] Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  // 1 and a text, or 0.
  [[nodiscard]] std::optional<std::string_view> answer() {
    if (number<std::uint8_t>() == 0) return std::nullopt;
    return take(number<std::uint32_t>());
  }

 private:
  std::string_view take(std::size_t size) {
    if (size > left_.size()) {
      throw device_error(device_error::reason::refused, "the plugin does not answer as a hash table does");
    }
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }

  std::string_view left_;
};

}  // namespace far::detail
