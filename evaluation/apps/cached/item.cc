#include "item.h"

#include <cstring>

#include "apps/hints.h"

namespace cached {

bool fits(std::size_t key_bytes, std::size_t value_bytes) {
  return value_bytes <= item_limit && sizeof(item) + key_bytes + value_bytes + 3 <= item_limit;
}

item_ptr make_item(std::string_view key, std::uint32_t flags, std::uint32_t expires, std::size_t value_bytes) {
  const std::size_t bytes = sizeof(item) + key.size() + value_bytes + 3;
  auto* const created = static_cast<item*>(std::malloc(bytes));
  if (created == nullptr) return nullptr;
  far_hint(created, .mutate = true, .size = bytes);
  *created = {};
  created->flags = flags;
  created->expires = expires;
  created->value_bytes = static_cast<std::uint32_t>(value_bytes);
  created->key_bytes = static_cast<std::uint8_t>(key.size());
  std::memcpy(created + 1, key.data(), key.size());
  std::memcpy(created->value_begin() + value_bytes, "\r\n", 3);
  return item_ptr(created);
}

}  // namespace cached
