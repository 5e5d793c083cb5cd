// store::count(), the numbers among the values.
#include <fmt/format.h>

#include <cstring>

#include "command.h"
#include "store.h"

namespace cached {

count_outcome store::count(std::string_view key, bool up, std::uint64_t delta, std::uint64_t& result) {
  const std::uint64_t hash = hash_of(key);
  shard& in = shard_of(hash);
  const std::lock_guard guard(in.lock);
  item* const found = find(in, key, hash);
  if (found == nullptr) {
    (up ? seen.incr_misses : seen.decr_misses).fetch_add(1, std::memory_order_relaxed);
    return count_outcome::not_found;
  }
  std::uint64_t value = 0;
  if (found->value_bytes == 0 || !parse(found->value_begin(), value)) return count_outcome::not_a_number;
  (up ? seen.incr_hits : seen.decr_hits).fetch_add(1, std::memory_order_relaxed);
  result = up ? value + delta : value > delta ? value - delta : 0;
  const auto digits = fmt::format_int(result);
  if (digits.size() <= found->value_bytes) {
    // As memcached does: a number that has become shorter is filled up with spaces.
    std::memset(found->value_begin(), ' ', found->value_bytes);
    std::memcpy(found->value_begin(), digits.data(), digits.size());
    found->cas = last_cas_.fetch_add(1, std::memory_order_relaxed) + 1;
    found->used = true;
    return count_outcome::counted;
  }
  item_ptr longer = make_item(key, found->flags, found->expires, digits.size());
  if (longer == nullptr) return count_outcome::no_memory;
  std::memcpy(longer->value_begin(), digits.data(), digits.size());
  longer->hash = hash;
  unlink(in, found);
  link(in, std::move(longer));
  return count_outcome::counted;
}

}  // namespace cached
