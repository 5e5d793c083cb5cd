#include "store.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "apps/hints.h"

namespace cached {
namespace {

std::int64_t seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec;
}

// Few enough that each has room for some of the largest items: which shard evicts is chance.
std::size_t shards_for(std::size_t limit_bytes) {
  return std::bit_floor(std::clamp<std::size_t>(limit_bytes / (8 * item_limit), 1, 256));
}

}  // namespace

std::uint64_t hash_of(std::string_view key) {
  std::uint64_t hash = std::hash<std::string_view>{}(key);
  return (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9u;
}

coarse_clock::coarse_clock()
    : started_monotonic_(seconds_of(CLOCK_MONOTONIC_COARSE) - before_start),
      started_unix_(seconds_of(CLOCK_REALTIME_COARSE) - before_start) {}

std::uint32_t coarse_clock::now() const {
  return static_cast<std::uint32_t>(seconds_of(CLOCK_MONOTONIC_COARSE) - started_monotonic_);
}

std::uint32_t coarse_clock::expiry(std::int32_t requested) const {
  constexpr std::int32_t longest_delta = 60 * 60 * 24 * 30;
  constexpr std::uint32_t past = 1;
  if (requested == 0) return 0;
  if (requested < 0) return past;
  if (requested <= longest_delta) return now() + static_cast<std::uint32_t>(requested);
  if (requested <= started_unix_) return past;
  return static_cast<std::uint32_t>(requested - started_unix_);
}

void counters::reset() {
  for (auto* counter :
       {&gets,       &get_hits,     &get_misses,  &get_expired,   &get_flushed, &sets,        &flushes,   &touches,
        &touch_hits, &touch_misses, &delete_hits, &delete_misses, &incr_hits,   &incr_misses, &decr_hits, &decr_misses,
        &cas_hits,   &cas_misses,   &cas_bad,     &evictions,     &total_items, &too_large}) {
    counter->store(0, std::memory_order_relaxed);
  }
}

store::store(std::size_t limit_bytes) : limit_bytes_(limit_bytes), shards_(shards_for(limit_bytes)) {
  for (shard& one : shards_) one.buckets.resize(256);
}

store::~store() {
  for (shard& one : shards_) {
    while (one.oldest != nullptr) unlink(one, one.oldest);
  }
}

store::state store::state_of(const item& entry) const {
  const std::uint32_t now = clock_.now();
  if (entry.cas <= flushed_cas_.load(std::memory_order_relaxed)) return state::flushed;
  const std::uint32_t flushed = flushed_second_.load(std::memory_order_relaxed);
  if (flushed != 0 && flushed <= now && entry.stored <= flushed) return state::flushed;
  return entry.expires != 0 && entry.expires <= now ? state::expired : state::live;
}

// Items that are gone are removed when they are found.
item* store::find(shard& in, std::string_view key, std::uint64_t hash, bool is_get) {
  item** const bucket = bucket_of(in, hash);
  far_hint(bucket);
  for (item* candidate = *bucket; candidate != nullptr; candidate = candidate->next) {
    far_hint(candidate);
    if (candidate->hash != hash || candidate->key() != key) continue;
    const state its = state_of(*candidate);
    if (its == state::live) return candidate;
    if (is_get) (its == state::expired ? seen.get_expired : seen.get_flushed).fetch_add(1, std::memory_order_relaxed);
    unlink(in, candidate);
    return nullptr;
  }
  return nullptr;
}

store_outcome store::put(item_ptr incoming, store_mode mode, std::uint64_t cas) {
  const std::uint64_t hash = hash_of(incoming->key());
  shard& in = shard_of(hash);
  {
    const std::lock_guard guard(in.lock);
    seen.sets.fetch_add(1, std::memory_order_relaxed);
    item* const present = find(in, incoming->key(), hash);
    if (mode == store_mode::add && present != nullptr) {
      present->used = true;
      return store_outcome::not_stored;
    }
    if (mode == store_mode::cas) {
      (present == nullptr ? seen.cas_misses : present->cas == cas ? seen.cas_hits : seen.cas_bad).fetch_add(1);
      if (present == nullptr) return store_outcome::not_found;
      if (present->cas != cas) return store_outcome::exists;
    }
    if (mode != store_mode::set && mode != store_mode::add && present == nullptr) return store_outcome::not_stored;
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
item_ptr store::joined(const item& present, const item& more, store_mode mode) {
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

bool store::remove(std::string_view key) {
  const std::uint64_t hash = hash_of(key);
  shard& in = shard_of(hash);
  const std::lock_guard guard(in.lock);
  item* const found = find(in, key, hash);
  (found != nullptr ? seen.delete_hits : seen.delete_misses).fetch_add(1, std::memory_order_relaxed);
  if (found != nullptr) unlink(in, found);
  return found != nullptr;
}

void store::drop(std::string_view key) {
  const std::uint64_t hash = hash_of(key);
  shard& in = shard_of(hash);
  const std::lock_guard guard(in.lock);
  if (item* const found = find(in, key, hash); found != nullptr) unlink(in, found);
}

bool store::touch(std::string_view key, std::uint32_t expires) {
  const std::uint64_t hash = hash_of(key);
  shard& in = shard_of(hash);
  const std::lock_guard guard(in.lock);
  item* const found = find(in, key, hash);
  seen.touches.fetch_add(1, std::memory_order_relaxed);
  (found != nullptr ? seen.touch_hits : seen.touch_misses).fetch_add(1, std::memory_order_relaxed);
  if (found == nullptr) return false;
  found->expires = expires;
  found->used = true;
  return true;
}

void store::flush(std::uint32_t at) {
  seen.flushes.fetch_add(1, std::memory_order_relaxed);
  flushed_second_.store(at, std::memory_order_relaxed);
  if (at <= clock_.now()) flushed_cas_.store(last_cas_.fetch_add(1) + 1, std::memory_order_relaxed);
}

void store::link(shard& in, item_ptr incoming) {
  if (in.items >= in.buckets.size() + in.buckets.size() / 2) grow(in);
  item* const added = incoming.release();
  added->cas = last_cas_.fetch_add(1, std::memory_order_relaxed) + 1;
  added->stored = clock_.now();
  item** const bucket = bucket_of(in, added->hash);
  added->next = *bucket;
  *bucket = added;
  push_newest(in, added);
  ++in.items;
  items_.fetch_add(1, std::memory_order_relaxed);
  seen.total_items.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(added->total_bytes(), std::memory_order_relaxed);
}

item_ptr store::unlink(shard& in, item* entry) {
  item** place = bucket_of(in, entry->hash);
  while (*place != entry) place = &(*place)->next;
  *place = entry->next;
  drop_from_order(in, entry);
  --in.items;
  items_.fetch_sub(1, std::memory_order_relaxed);
  bytes_.fetch_sub(entry->total_bytes(), std::memory_order_relaxed);
  return item_ptr(entry);
}

void store::push_newest(shard& in, item* entry) {
  entry->newer = nullptr;
  entry->older = in.newest;
  (in.newest != nullptr ? in.newest->newer : in.oldest) = entry;
  in.newest = entry;
}

void store::drop_from_order(shard& in, item* entry) {
  (entry->newer != nullptr ? entry->newer->older : in.newest) = entry->older;
  (entry->older != nullptr ? entry->older->newer : in.oldest) = entry->newer;
}

// One shard at a time, so nobody waits for a walk over all items.
void store::grow(shard& in) {
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
void store::evict() {
  std::size_t without = 0;
  while (bytes() > limit_bytes_ && without < shards_.size()) {
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
item_ptr store::evict_from(shard& in) {
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

}  // namespace cached
