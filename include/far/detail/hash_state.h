// The state of a far::hash_map, which stays where it is when the map moves.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "far/detail/hash_entry.h"
#include "far/detail/hash_shard.h"
#include "far/detail/left_entries.h"
#include "far/detail/own_tag.h"
#include "far/detail/retired.h"
#include "far/tag.h"

namespace far {

// The most that a map may hold. Beyond it, entries that have not been used for a while leave for good (CLOCK: used ones
// get a second chance). 0: any number.
struct hash_map_limits {
  std::size_t entries = 0;
  // The far objects: entries, and the far memory that keys and values own, where these say how much (owned_bytes()).
  std::size_t bytes = 0;
};

// Entries of such a map leave it when they leave local memory. It is a cache that uses whatever memory there is, with
// an index of the entries that are local. `how` says which leave first.
struct while_local {
  replacement how = {};
};

namespace detail {

template <typename K, typename V, typename Hash, typename Equal>
struct hash_state {
  using entry = hash_entry<K, V>;
  using eviction_callback = std::function<void(const K& key, const V& value)>;
  // How many retired entries are ended at a time.
  static constexpr std::size_t retired_batch = std::clamp<std::size_t>((std::size_t{1} << 18) / sizeof(entry), 1, 64);

  std::optional<own_tag> taken;  // for the map alone
  tag home;                      // of entries
  tag parts_home;                // of what keys and values own, since a handler must be given nothing but entries
  [[no_unique_address]] Hash hash_of;
  [[no_unique_address]] Equal equal;
  const bool is_limited;
  const hash_map_limits limits;
  const eviction_callback on_eviction;
  std::shared_ptr<left_entries> left;
  std::atomic<std::size_t> next_shard{0};  // for an eviction
  alignas(64) std::atomic<std::size_t> count{0};
  std::atomic<std::size_t> weight{0};
  retired_list retired{retired_batch};
  mutable std::array<hash_shard, hash_shards> shards;

  hash_state(const tag& in, const tag& parts_in, hash_map_limits wanted, eviction_callback&& callback,
             const Hash& user_hash, const Equal& user_equal)
      : home(in),
        parts_home(parts_in),
        hash_of(user_hash),
        equal(user_equal),
        is_limited(wanted.entries != 0 || wanted.bytes != 0),
        limits(wanted),
        on_eviction(std::move(callback)) {}
  hash_state(own_tag&& of_map, std::shared_ptr<left_entries> notes, hash_map_limits wanted,
             eviction_callback&& callback, const Hash& user_hash, const Equal& user_equal)
      : hash_state(of_map.get(), tag(of_map.get().home()), wanted, std::move(callback), user_hash, user_equal) {
    left = std::move(notes);
    taken.emplace(std::move(of_map));
  }
  ~hash_state() {
    taken.reset();  // no handler sees an entry that ends
    for (hash_shard& shard : shards) {
      end_entries<entry>()([&](auto visit) { shard.index.for_each_bucket(visit); });
    }
  }

  [[nodiscard]] bool is_over() const {
    return (limits.entries != 0 && count.load(std::memory_order_relaxed) > limits.entries) ||
           (limits.bytes != 0 && weight.load(std::memory_order_relaxed) > limits.bytes);
  }
};

}  // namespace detail
}  // namespace far
