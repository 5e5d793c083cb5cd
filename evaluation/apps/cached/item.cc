#include "item.h"

#include <cstring>

#include "apps/hints.h"

namespace cached {

bool fits(std::size_t key_bytes, std::size_t value_bytes) {
  return value_bytes <= item_limit && sizeof(item) + key_bytes + value_bytes + 3 <= item_limit;
}

item_ptr make_item(std::string_view key, std::uint32_t flags, std::uint32_t expires, std::size_t value_bytes) {
  const std::size_t bytes = sizeof(item) + key.size() + value_bytes + 3;
  auto* const made = static_cast<item*>(std::malloc(bytes));
  if (made == nullptr) return nullptr;
  far_hint(made, .mutate = true, .size = bytes);
  *made = {};
  made->flags = flags;
  made->expires = expires;
  made->value_bytes = static_cast<std::uint32_t>(value_bytes);
  made->key_bytes = static_cast<std::uint8_t>(key.size());
  std::memcpy(made + 1, key.data(), key.size());
  std::memcpy(made->value_begin() + value_bytes, "\r\n", 3);
  return item_ptr(made);
}

}  // namespace cached
