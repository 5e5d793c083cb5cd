// An item as the server stores it: one block of plain memory, with its header, its key and its value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace cached {

inline constexpr std::size_t key_limit = 250;
// Of an item with everything in it: a value of 1 MiB is just too large, as it is for memcached.
inline constexpr std::size_t item_limit = std::size_t{1} << 20;

// Key, value, "\r\n" and a NUL follow. Those two are stored so that a value is sent, and read as a number, as it lies.
struct item {
  item* next;   // in its bucket's chain
  item* newer;  // in its shard's order of use
  item* older;
  std::uint64_t hash;
  std::uint64_t cas;
  std::uint32_t flags;
  std::uint32_t expires;  // the second (coarse_clock) from which on it is gone; 0: never
  std::uint32_t stored;   // the second in which it was
  std::uint32_t value_bytes;
  std::uint8_t key_bytes;
  bool used;  // since the evictor last looked at it

  [[nodiscard]] const char* key_begin() const { return reinterpret_cast<const char*>(this + 1); }
  [[nodiscard]] std::string_view key() const { return {key_begin(), key_bytes}; }
  [[nodiscard]] char* value_begin() { return reinterpret_cast<char*>(this + 1) + key_bytes; }
  [[nodiscard]] const char* value_begin() const { return key_begin() + key_bytes; }
  [[nodiscard]] std::string_view value() const { return {value_begin(), value_bytes}; }
  // With its "\r\n".
  [[nodiscard]] std::string_view line() const { return {value_begin(), value_bytes + std::size_t{2}}; }
  [[nodiscard]] std::size_t total_bytes() const { return sizeof(item) + key_bytes + value_bytes + 3; }
};

struct free_item {
  void operator()(item* entry) const { std::free(entry); }
};
using item_ptr = std::unique_ptr<item, free_item>;

// Whether an item of this size may be stored.
[[nodiscard]] bool fits(std::size_t key_bytes, std::size_t value_bytes);

// An item whose value is to be filled in; null when there is no memory. Requires that it fits.
[[nodiscard]] item_ptr make_item(std::string_view key, std::uint32_t flags, std::uint32_t expires,
                                 std::size_t value_bytes);

}  // namespace cached
