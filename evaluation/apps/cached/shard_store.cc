// Items in plain memory: a hash table in shards, each with a mutex, chained buckets and an order of use.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <mutex>
#include <vector>

#include "apps/hints.h"
#include "store.h"

namespace cached {
namespace {

// Few enough that each has room for some of the largest items: which shard evicts is chance.
std::size_t shards_for(std::size_t limit_bytes) {
  return std::bit_floor(std::clamp<std::size_t>(limit_bytes / (8 * item_limit), 1, 256));
}

std::uint64_t hash_of(std::string_view key) {
  std::uint64_t hash = std::hash<std::string_view>{}(key);
  return (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9u;
}

class shard_store final : public store {
 public:
  explicit shard_store(std::size_t limit_bytes);
  ~shard_store() override;

  bool get(std::string_view key, const std::function<void(const found_item&)>& with) override;
  store_outcome put(item_ptr incoming, store_mode mode, std::uint64_t cas) override;
  bool remove(std::string_view key) override;
  void drop(std::string_view key) override;
  bool touch(std::string_view key, std::uint32_t expires) override;
  count_outcome count(std::string_view key, bool up, std::uint64_t delta, std::uint64_t& result) override;
  [[nodiscard]] std::size_t bytes() const override { return bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t items() const override { return items_.load(std::memory_order_relaxed); }

 private:
  struct shard {
    std::mutex lock;
    std::vector<item*> buckets;
    std::size_t items = 0;
    item* newest = nullptr;
    item* oldest = nullptr;
  };

  shard& shard_of(std::uint64_t hash) { return shards_[hash & (shards_.size() - 1)]; }
  item** bucket_of(shard& in, std::uint64_t hash) { return &in.buckets[(hash >> 16) & (in.buckets.size() - 1)]; }
  [[nodiscard]] state state_of(const item& entry) const {
    return store::state_of(entry.cas, entry.stored, entry.expires);
  }
  item* find(shard& in, std::string_view key, std::uint64_t hash, bool is_get = false);
  void link(shard& in, item_ptr incoming);
  item_ptr unlink(shard& in, item* entry);
  void push_newest(shard& in, item* entry);
  void drop_from_order(shard& in, item* entry);
  void grow(shard& in);
  void evict();
  item_ptr evict_from(shard& in);
  static item_ptr joined(const item& present, const item& more, store_mode mode);

  std::vector<shard> shards_;
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::size_t> items_{0};
  std::atomic<std::size_t> evict_next_{0};
};

shard_store::shard_store(std::size_t limit_bytes) : store(limit_bytes), shards_(shards_for(limit_bytes)) {
  for (shard& one : shards_) one.buckets.resize(256);
}

shard_store::~shard_store() {
  for (shard& one : shards_) {
    while (one.oldest != nullptr) unlink(one, one.oldest);
  }
}

// Items that are gone are removed when they are found.
item* shard_store::find(shard& in, std::string_view key, std::uint64_t hash, bool is_get) {
  item** const bucket = bucket_of(in, hash);
  far_hint(bucket);
  for (item* candidate = *bucket; candidate != nullptr; candidate = candidate->next) {
    far_hint(candidate);
    if (candidate->hash != hash || candidate->key() != key) continue;
    const state its = state_of(*candidate);
    if (its == state::live) return candidate;
    if (is_get) seen_gone(its);
    unlink(in, candidate);
    return nullptr;
  }
  return nullptr;
}

bool shard_store::get(std::string_view key, const std::function<void(const found_item&)>& with) {
  const std::uint64_t hash = hash_of(key);
  shard& in = shard_of(hash);
  const std::lock_guard guard(in.lock);
  item* const found = find(in, key, hash, true);
  if (!seen_get(found != nullptr)) return false;
  // Not written when it is so already: a page that is only read stays clean, and leaves local memory for nothing.
  if (!found->used) found->used = true;
  const std::string_view line = found->line();
  far_hint(line.data(), .size = line.size());
  with({found->flags, found->cas, line});
  return true;
}

store_outcome shard_store::put(item_ptr incoming, store_mode mode, std::uint64_t cas) {
  const std::uint64_t hash = hash_of(incoming->key());
  shard& in = shard_of(hash);
  {
    const std::lock_guard guard(in.lock);
    item* const present = find(in, incoming->key(), hash);
    const store_outcome judged = judge(mode, present == nullptr ? 0 : present->cas, cas);
    if (mode == store_mode::add && present != nullptr) present->used = true;
    if (judged != store_outcome::stored) return judged;
    if (mode == store_mode::append || mode == store_mode::prepend) {
      incoming = joined(*present, *incoming, mode);
      if (incoming == nullptr) return store_outcome::not_stored;
    }
    if (present != nullptr) unlink(in, present);
    incoming->hash = hash;
    link(in, std::move(incoming));
  }
  evict();
  return store_outcome::stored;
}

// Null when it would be too large, or there is no memory.
item_ptr shard_store::joined(const item& present, const item& more, store_mode mode) {
  const std::size_t bytes = std::size_t{present.value_bytes} + more.value_bytes;
  if (!fits(present.key_bytes, bytes)) return nullptr;
  item_ptr whole = make_item(present.key(), present.flags, present.expires, bytes);
  if (whole == nullptr) return nullptr;
  const std::string_view first = mode == store_mode::append ? present.value() : more.value();
  const std::string_view second = mode == store_mode::append ? more.value() : present.value();
  std::memcpy(whole->value_begin(), first.data(), first.size());
  std::memcpy(whole->value_begin() + first.size(), second.data(), second.size());
  return whole;
}

bool shard_store::remove(std::string_view key) {
  const std::uint64_t hash = hash_of(key);
  shard& in = shard_of(hash);
  const std::lock_guard guard(in.lock);
  item* const found = find(in, key, hash);
  if (found != nullptr) unlink(in, found);
  return seen_delete(found != nullptr);
}

void shard_store::drop(std::string_view key) {
  const std::uint64_t hash = hash_of(key);
  shard& in = shard_of(hash);
  const std::lock_guard guard(in.lock);
  if (item* const found = find(in, key, hash); found != nullptr) unlink(in, found);
}

bool shard_store::touch(std::string_view key, std::uint32_t expires) {
  const std::uint64_t hash = hash_of(key);
  shard& in = shard_of(hash);
  const std::lock_guard guard(in.lock);
  item* const found = find(in, key, hash);
  if (!seen_touch(found != nullptr)) return false;
  found->expires = expires;
  found->used = true;
  return true;
}

count_outcome shard_store::count(std::string_view key, bool up, std::uint64_t delta, std::uint64_t& result) {
  const std::uint64_t hash = hash_of(key);
  shard& in = shard_of(hash);
  const std::lock_guard guard(in.lock);
  item* const found = find(in, key, hash);
  if (found == nullptr) {
    (up ? seen.incr_misses : seen.decr_misses).fetch_add(1, std::memory_order_relaxed);
    return count_outcome::not_found;
  }
  const std::optional<std::uint64_t> number = counted(found->value_begin(), up, delta);
  if (!number) return count_outcome::not_a_number;
  result = *number;
  const auto digits = fmt::format_int(result);
  if (digits.size() <= found->value_bytes) {
    // As memcached does: a number that has become shorter is filled up with spaces.
    std::memset(found->value_begin(), ' ', found->value_bytes);
    std::memcpy(found->value_begin(), digits.data(), digits.size());
    found->cas = next_cas();
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

void shard_store::link(shard& in, item_ptr incoming) {
  if (in.items >= in.buckets.size() + in.buckets.size() / 2) grow(in);
  item* const added = incoming.release();
  added->cas = next_cas();
  added->stored = clock().now();
  item** const bucket = bucket_of(in, added->hash);
  added->next = *bucket;
  *bucket = added;
  push_newest(in, added);
  ++in.items;
  items_.fetch_add(1, std::memory_order_relaxed);
  seen.total_items.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(added->total_bytes(), std::memory_order_relaxed);
}

item_ptr shard_store::unlink(shard& in, item* entry) {
  item** place = bucket_of(in, entry->hash);
  while (*place != entry) place = &(*place)->next;
  *place = entry->next;
  drop_from_order(in, entry);
  --in.items;
  items_.fetch_sub(1, std::memory_order_relaxed);
  bytes_.fetch_sub(entry->total_bytes(), std::memory_order_relaxed);
  return item_ptr(entry);
}

void shard_store::push_newest(shard& in, item* entry) {
  entry->newer = nullptr;
  entry->older = in.newest;
  (in.newest != nullptr ? in.newest->newer : in.oldest) = entry;
  in.newest = entry;
}

void shard_store::drop_from_order(shard& in, item* entry) {
  (entry->newer != nullptr ? entry->newer->older : in.newest) = entry->older;
  (entry->older != nullptr ? entry->older->newer : in.oldest) = entry->newer;
}

// One shard at a time, so nobody waits for a walk over all items.
void shard_store::grow(shard& in) {
  std::vector<item*> before(in.buckets.size() * 2);
  before.swap(in.buckets);
  for (item* candidate : before) {
    while (candidate != nullptr) {
      item* const next = candidate->next;
      item** const bucket = bucket_of(in, candidate->hash);
      candidate->next = *bucket;
      *bucket = candidate;
      candidate = next;
    }
  }
}

// From one shard after the other, until what is stored fits.
void shard_store::evict() {
  std::size_t without = 0;
  while (bytes() > limit_bytes() && without < shards_.size()) {
    shard& in = shards_[evict_next_.fetch_add(1, std::memory_order_relaxed) & (shards_.size() - 1)];
    item_ptr evicted;
    {
      const std::lock_guard guard(in.lock);
      evicted = evict_from(in);
    }
    without = evicted != nullptr ? 0 : without + 1;
  }
}

// Least recently used, by second chance: getting an item sets a flag rather than move it, which would write to it and
// its neighbours each time.
item_ptr shard_store::evict_from(shard& in) {
  for (std::size_t left = in.items; left > 0; --left) {
    item* const oldest = in.oldest;
    if (!oldest->used || left == 1) {
      if (state_of(*oldest) == state::live) seen.evictions.fetch_add(1, std::memory_order_relaxed);
      return unlink(in, oldest);
    }
    oldest->used = false;
    drop_from_order(in, oldest);
    push_newest(in, oldest);
  }
  return nullptr;
}

}  // namespace

const bool is_far = false;
const char* const memory_name = "plain memory";

std::unique_ptr<store> open_store(const store_options& options) {
  return std::make_unique<shard_store>(options.limit_bytes);
}

}  // namespace cached
