// The items: a hash table in shards, each with a mutex, chained buckets and an order of use.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "item.h"

namespace cached {

// Seconds since a moment shortly before the start, as in memcached, so that 0 is no time and the past has numbers.
class coarse_clock {
 public:
  coarse_clock();
  [[nodiscard]] std::uint32_t now() const;
  [[nodiscard]] std::uint32_t uptime() const { return now() - before_start; }

  // The second at which something expires that the protocol says so of: 0 never, negative at once, up to 30 days from
  // now, else a Unix time.
  [[nodiscard]] std::uint32_t expiry(std::int32_t requested) const;

 private:
  static constexpr std::uint32_t before_start = 2;
  std::int64_t started_monotonic_;
  std::int64_t started_unix_;
};

enum class store_mode { set, add, replace, append, prepend, cas };
enum class store_outcome { stored, not_stored, exists, not_found };
enum class count_outcome { counted, not_found, not_a_number, no_memory };

// Since the start, or the last reset.
struct counters {
  std::atomic<std::uint64_t> gets, get_hits, get_misses, get_expired, get_flushed, sets, flushes, touches, touch_hits,
      touch_misses, delete_hits, delete_misses, incr_hits, incr_misses, decr_hits, decr_misses, cas_hits, cas_misses,
      cas_bad, evictions, total_items, too_large;
  void reset();
};

class store {
 public:
  explicit store(std::size_t limit_bytes);
  ~store();
  store(const store&) = delete;
  store& operator=(const store&) = delete;

  // Calls `with(const item&)` if the key is there, holding its shard's lock.
  template <typename With>
  bool get(std::string_view key, With with);

  // `cas` is the unique number that the item must have, with store_mode::cas.
  store_outcome put(item_ptr incoming, store_mode mode, std::uint64_t cas = 0);
  bool remove(std::string_view key);
  // The same, but not counted as a delete.
  void drop(std::string_view key);
  bool touch(std::string_view key, std::uint32_t expires);
  // Adds or subtracts; sets the result. Sums wrap, differences end at 0.
  count_outcome count(std::string_view key, bool up, std::uint64_t delta, std::uint64_t& result);
  // Everything stored until the second `at` is gone from then on; 0: everything, now.
  void flush(std::uint32_t at);

  [[nodiscard]] const coarse_clock& clock() const { return clock_; }
  [[nodiscard]] std::size_t limit_bytes() const { return limit_bytes_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t items() const { return items_.load(std::memory_order_relaxed); }
  counters seen{};

 private:
  struct shard {
    std::mutex lock;
    std::vector<item*> buckets;
    std::size_t items = 0;
    item* newest = nullptr;
    item* oldest = nullptr;
  };
  enum class state { live, expired, flushed };

  shard& shard_of(std::uint64_t hash) { return shards_[hash & (shards_.size() - 1)]; }
  item** bucket_of(shard& in, std::uint64_t hash) { return &in.buckets[(hash >> 16) & (in.buckets.size() - 1)]; }
  item* find(shard& in, std::string_view key, std::uint64_t hash, bool is_get = false);
  [[nodiscard]] state state_of(const item& entry) const;
  void link(shard& in, item_ptr incoming);
  item_ptr unlink(shard& in, item* entry);
  void push_newest(shard& in, item* entry);
  void drop_from_order(shard& in, item* entry);
  void grow(shard& in);
  void evict();
  item_ptr evict_from(shard& in);
  static item_ptr joined(const item& present, const item& more, store_mode mode);

  coarse_clock clock_;
  std::size_t limit_bytes_;
  std::vector<shard> shards_;
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::size_t> items_{0};
  std::atomic<std::size_t> evict_next_{0};
  std::atomic<std::uint64_t> last_cas_{0};
  std::atomic<std::uint64_t> flushed_cas_{0};     // items with this number or a lower one are gone
  std::atomic<std::uint32_t> flushed_second_{0};  // those stored until then are, once it has come; 0: none
};

[[nodiscard]] std::uint64_t hash_of(std::string_view key);

template <typename With>
bool store::get(std::string_view key, With with) {
  const std::uint64_t hash = hash_of(key);
  shard& in = shard_of(hash);
  const std::lock_guard guard(in.lock);
  seen.gets.fetch_add(1, std::memory_order_relaxed);
  item* const found = find(in, key, hash, true);
  if (found == nullptr) {
    seen.get_misses.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  seen.get_hits.fetch_add(1, std::memory_order_relaxed);
  // Not written when it is so already: a page that is only read stays clean, and leaves local memory for nothing.
  if (!found->used) found->used = true;
  with(static_cast<const item&>(*found));
  return true;
}

}  // namespace cached
