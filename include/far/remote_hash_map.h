// far::remote_hash_map: a hash map on a memory server, with the entries in use in local memory (docs/devices.md).
//
//     far::remote_hash_map<std::uint64_t, order> orders(farheap, "tcp://cache1:7070,cache2:7070?copies=2");
//     orders.put(7, order{...});
//     std::optional<order> copy = orders.get(7);
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "far/detail/bounds.h"
#include "far/detail/chunk.h"
#include "far/detail/hash_entry.h"
#include "far/detail/table_bytes.h"
#include "far/detail/table_client.h"
#include "far/device.h"
#include "far/fiber.h"
#include "far/hash_map.h"
#include "far/page_lost.h"
#include "far/remote_table.h"
#include "far/scope.h"

namespace far {

// Where the entries in local memory are, too (AIFM, section 8.1.2).
enum class table_caching : std::uint8_t {
  // At the table. A miss is a question, which any copy of the table answers; leaving local memory costs nothing; each
  // change is a call.
  inclusive,
  // Nowhere else: the table's room serves those that are not here. Changes of what is here are no calls. What has left
  // local memory goes to the table with the next miss, in the same round trip.
  exclusive,
};

struct remote_hash_map_options {
  table_caching caching = table_caching::inclusive;
  replacement how = {};                    // which entries leave local memory first
  std::string_view plugin = "hash_table";  // on the servers; it has the operations of far/remote_table.h
  device_options device = {};              // its room, and the deadline of calls
};

struct remote_hash_map_statistics {
  std::uint64_t calls = 0;  // of the table, since the start
  std::size_t here = 0;     // entries in the program
};

// Keys to values in a table on a server, which walks its chains where they are: a look-up takes one round trip, and
// find_many() one for all keys. Entries that were used are in the far heap, within the program's budget of local
// memory, until they leave it. Hits are those of far::hash_map and wait for nobody; calls of the table take turns. The
// table belongs to the map, and ends with it. Takes a tag of the runtime until it is destroyed (far/tag.h).
//
// Keys are trivially copyable, and equal if their bytes are: numbers, structs of them, and arrays of characters. Values
// are trivially copyable, or far::string, whose copies are std::string. Hash is as for far::hash_map, and uses no far
// memory. Key and value have at most 4072 bytes together, less if they are aligned to more than 16, besides those of a
// string, which has at most 1,000,000.
//
// Any number of fibers and threads may use it at a time, but not inside far::blocking(). Operations on one key are
// atomic with regard to each other. All but statistics() throw device_error (far/device.h). After `unreachable` a
// change may have happened or happen yet, before whatever the map does next at the table; no entry is lost by it. After
// any other error of the device nothing has happened. std::bad_alloc loses no entry either. page_lost, when the far
// tier of the runtime has lost entries, loses entries of an exclusive map only.
template <typename K, typename V, typename Hash = hash<K>>
class remote_hash_map {
  static_assert(detail::table_key<K>, "keys are compared as bytes, so they have no padding and no floats");
  static_assert(detail::table_type<V>, "the table and the program share nothing but bytes");
  static_assert(detail::shares_a_page<detail::hash_entry<K, V>>,
                "entries of a far::remote_hash_map share pages of local memory: key and value have at most 4072 bytes "
                "together, and less if they are aligned to more than 16");

  using cache = hash_map<K, V, Hash>;

 public:
  using key_type = K;
  using mapped_type = V;
  using copy_type = detail::table_copy<V>;

  // `tier` is as for far::device. Requires: the runtime outlives it. Throws what far::tag does, and device_error.
  remote_hash_map(runtime& home, std::string_view tier, const remote_hash_map_options& chosen = {},
                  const Hash& hash_of = {})
      : caching_(chosen.caching),
        device_(tier, chosen.plugin, chosen.device),
        table_(device_),
        cache_(
            home, while_local{chosen.how}, {},
            chosen.caching == table_caching::inclusive
                ? typename cache::eviction_callback{}
                : [this](const K& key,
                         const V& value) { table_.add(detail::to_table<K>(key), detail::to_table<V>(value)); },
            hash_of) {}
  remote_hash_map(const remote_hash_map&) = delete;
  remote_hash_map& operator=(const remote_hash_map&) = delete;

  // ---- look-up ----

  // The value, in place until the scope ends; nullptr when there is none. It must not be changed.
  template <typename Q = K>
  [[nodiscard]] const V* find(const scope& in, const Q& key) {
    if (const V* const found = here([&] { return cache_.find(in, key); })) return found;
    const std::string bytes = detail::to_table<K>(key);
    const std::lock_guard guard(lock_);
    return find_locked(in, bytes);
  }
  template <typename Q = K>
  const V* find(const scope&& the_scope_must_be_a_local_variable, const Q& key) = delete;

  // A copy of the value.
  template <typename Q = K>
  [[nodiscard]] std::optional<copy_type> get(const Q& key) {
    if (std::optional<copy_type> found = here([&] { return cache_.get(key); })) return found;
    const std::string bytes = detail::to_table<K>(key);
    const std::lock_guard guard(lock_);
    return get_locked(bytes);
  }
  template <typename Q = K>
  [[nodiscard]] bool contains(const Q& key) {
    return get(key).has_value();
  }

  // Look many keys up: found[i] belongs to keys[i]. All that are not here come in one round trip, if keys and values
  // fit into messages of a megabyte. Throw std::invalid_argument when `found` is shorter than `keys`.
  template <typename Q>
  void find_many(const scope& in, std::span<const Q> keys, std::span<const V*> found) {
    detail::require_room("find_many()", keys.size(), found.size());
    std::ranges::fill(found.first(keys.size()), nullptr);
    find_here([&] { cache_.find_many(in, keys, found); });
    bring_missing(
        keys, [&](std::size_t i) { return found[i] == nullptr; },
        [&](std::size_t i, const std::string& bytes, const std::string&) { found[i] = find_locked(in, bytes); });
  }
  template <typename Q>
  void find_many(const scope&& the_scope_must_be_a_local_variable, std::span<const Q> keys,
                 std::span<const V*> found) = delete;
  template <typename Q>
  void get_many(std::span<const Q> keys, std::span<std::optional<copy_type>> found) {
    detail::require_room("get_many()", keys.size(), found.size());
    std::ranges::fill(found.first(keys.size()), std::nullopt);
    find_here([&] { cache_.get_many(keys, found); });
    bring_missing(
        keys, [&](std::size_t i) { return !found[i]; },
        [&](std::size_t i, const std::string&, const std::string& value) { found[i] = detail::from_table<V>(value); });
  }

  // ---- change ---- Throw std::length_error for an entry that is too long.

  // Inserts, or replaces the value. Returns whether it inserted.
  template <typename Q = K, typename Value = V>
  bool put(const Q& key, const Value& value) {
    const std::string bytes = detail::to_table<K>(key);
    const std::string fresh = detail::to_table<V>(value);
    require_short(bytes, fresh);
    const std::lock_guard guard(lock_);
    return put_locked(bytes, fresh);
  }
  template <typename Q = K, typename Value = V>
  bool insert_or_assign(const Q& key, const Value& value) {
    return put(key, value);
  }
  // Inserts unless there is one already. Returns whether it did.
  template <typename Q = K, typename Value = V>
  bool insert(const Q& key, const Value& value) {
    const std::string bytes = detail::to_table<K>(key);
    const std::string fresh = detail::to_table<V>(value);
    require_short(bytes, fresh);
    const std::lock_guard guard(lock_);
    return !get_locked(bytes) && put_locked(bytes, fresh);
  }
  // Calls change(copy_type&) on a copy, which then takes the value's place. Returns whether there is such a key. When
  // `change` throws, nothing has happened. It must not use the map.
  template <typename Q = K, std::invocable<copy_type&> Change>
  bool update(const Q& key, Change change) {
    const std::string bytes = detail::to_table<K>(key);
    const std::lock_guard guard(lock_);
    std::optional<copy_type> value = get_locked(bytes);
    if (!value) return false;
    change(*value);
    const std::string fresh = detail::to_table<V>(*value);
    require_short(bytes, fresh);
    put_locked(bytes, fresh);
    return true;
  }
  // Returns whether there was one.
  template <typename Q = K>
  bool erase(const Q& key) {
    const std::string bytes = detail::to_table<K>(key);
    const std::lock_guard guard(lock_);
    if (caching_ == table_caching::inclusive) {
      forget(bytes);
      return table_.take(bytes);
    }
    table_.finish();
    return cache_.erase(argument_of(bytes)) || table_.erase(bytes);
  }
  // When it throws, some entries may have gone.
  void clear() {
    const std::lock_guard guard(lock_);
    cache_.clear();
    table_.clear();
  }

  // ---- the whole ----

  // Asks the table.
  [[nodiscard]] std::size_t size() {
    const std::lock_guard guard(lock_);
    const std::size_t there = table_.size();
    return caching_ == table_caching::inclusive ? there : there + cache_.size();
  }
  [[nodiscard]] bool empty() { return size() == 0; }
  // As of far::device.
  [[nodiscard]] std::size_t copies() const { return device_.copies(); }
  [[nodiscard]] remote_hash_map_statistics statistics() {
    const std::lock_guard guard(lock_);
    return {table_.calls(), cache_.size() + table_.left()};
  }

 private:
  using values = detail::table_client::values;

  // ---- entries that are here ----

  // What the cache says. An inclusive map that has lost entries with its far tier asks the table for all.
  template <typename Use>
  auto here(Use use) {
    if (caching_ == table_caching::exclusive) return use();
    try {
      return use();
    } catch (const page_lost&) {
      cache_.clear();
      return decltype(use()){};
    }
  }
  template <typename Use>
  void find_here(Use use) {
    static_cast<void>(here([&] {
      use();
      return true;
    }));
  }
  void forget(const std::string& bytes) {
    static_cast<void>(here([&] { return cache_.erase(argument_of(bytes)); }));
  }
  [[nodiscard]] static K argument_of(const std::string& bytes) { return detail::from_table<K>(bytes); }

  // ---- the rest ---- Requires of all: lock_ is held.

  [[nodiscard]] std::optional<copy_type> get_locked(const std::string& bytes) {
    if (std::optional<copy_type> found = here([&] { return cache_.get(argument_of(bytes)); })) return found;
    const std::optional<std::string> value = bring(bytes);
    if (!value) return std::nullopt;
    return detail::from_table<V>(*value);
  }
  [[nodiscard]] const V* find_locked(const scope& in, const std::string& bytes) {
    // When memory is very short, what has come may have left again.
    for (;;) {
      if (const V* const found = here([&] { return cache_.find(in, argument_of(bytes)); })) return found;
      if (!bring(bytes)) return nullptr;
    }
  }
  [[nodiscard]] std::optional<std::string> bring(const std::string& bytes) {
    values found = bring_all({bytes});
    const auto value = found.find(bytes);
    if (value == found.end()) return std::nullopt;
    return std::move(value->second);
  }
  // Brings entries that are not here. Returns them.
  [[nodiscard]] values bring_all(detail::table_client::key_list keys) {
    values found;
    if (caching_ == table_caching::inclusive) {
      table_.ask(keys, found);
      for (const auto& [key, value] : found) {
        static_cast<void>(cache_.insert(argument_of(key), detail::from_table<V>(value)));
      }
      return found;
    }
    table_.fetch(keys);
    for (const std::string_view key : keys) {
      const std::string bytes(key);
      const std::string* const value = table_.find(bytes);
      if (value == nullptr) continue;
      const auto [one, is_new] = found.emplace(bytes, *value);
      if (is_new) change_here(bytes, [&] { static_cast<void>(cache_.insert(argument_of(bytes), value_of(one))); });
    }
    return found;
  }
  [[nodiscard]] static copy_type value_of(const values::const_iterator& one) {
    return detail::from_table<V>(one->second);
  }
  // Exclusive: calls add(), which puts the entry into the cache, in place of that which has left it.
  template <typename Add>
  bool change_here(const std::string& bytes, Add add) {
    values::node_type old = table_.extract(bytes);
    const bool is_new = old.empty();
    try {
      add();
    } catch (...) {
      if (!is_new && !cache_.contains(argument_of(bytes))) table_.put_back(std::move(old));
      throw;
    }
    return is_new;
  }
  // Calls use(i, key, value) for all keys that the table has.
  template <typename Q, typename IsMissing, typename Use>
  void bring_missing(std::span<const Q> keys, IsMissing is_missing, Use use) {
    std::vector<std::pair<std::size_t, std::string>> missing;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (is_missing(i)) missing.emplace_back(i, detail::to_table<K>(keys[i]));
    }
    if (missing.empty()) return;
    const std::lock_guard guard(lock_);
    detail::table_client::key_list wanted;
    std::vector<bool> is_here(missing.size());
    for (std::size_t one = 0; one < missing.size(); ++one) {
      const std::string& bytes = missing[one].second;
      is_here[one] = here([&] { return cache_.contains(argument_of(bytes)); });  // others have brought it
      if (!is_here[one]) wanted.push_back(bytes);
    }
    const values found = bring_all(std::move(wanted));
    for (std::size_t one = 0; one < missing.size(); ++one) {
      const auto& [i, bytes] = missing[one];
      if (const auto got = found.find(bytes); got != found.end()) {
        use(i, bytes, got->second);
      } else if (is_here[one]) {
        // The others that came may have pushed it out.
        if (const std::optional<copy_type> copy = get_locked(bytes)) use(i, bytes, detail::to_table<V>(*copy));
      }
    }
  }

  bool put_locked(const std::string& bytes, const std::string& fresh) {
    const copy_type value = detail::from_table<V>(fresh);
    if (caching_ == table_caching::inclusive) {
      // If the call fails, nobody knows which value the table has.
      forget(bytes);
      const bool is_new = table_.put(bytes, fresh);
      static_cast<void>(cache_.insert(argument_of(bytes), value));
      return is_new;
    }
    table_.finish();
    table_.give_if_many();
    if (cache_.contains(argument_of(bytes))) return cache_.put(argument_of(bytes), value);
    // An old entry there would come back one day.
    table_.fetch({bytes});
    return change_here(bytes, [&] { static_cast<void>(cache_.put(argument_of(bytes), value)); });
  }

  static void require_short(std::string_view key, std::string_view value) {
    if (key.size() + value.size() > remote_table::most_entry_bytes) {
      throw std::length_error("an entry of a far::remote_hash_map that no message has room for");
    }
  }

  const table_caching caching_;
  device device_;
  mutex lock_;  // of what follows, and of all changes of the cache
  detail::table_client table_;
  cache cache_;  // the last: what leaves it goes to the table
};

}  // namespace far
