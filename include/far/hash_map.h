// far::hash_map: a hash map in far memory for concurrent fibers and threads, or a cache (docs/containers.md).
//
//     far::hash_map<std::uint64_t, order> orders(farheap);
//     orders.put(7, order{...});
//     std::optional<order> copy = orders.get(7);
//     const far::scope here(farheap);
//     if (const order* found = orders.find(here, 7)) use(*found);  // good until the scope ends
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <span>
#include <type_traits>
#include <utility>

#include "far/detail/bounds.h"
#include "far/detail/chunk.h"
#include "far/detail/hash_entry.h"
#include "far/detail/hash_index.h"
#include "far/detail/hash_shard.h"
#include "far/detail/hash_state.h"
#include "far/detail/left_entries.h"
#include "far/detail/own_tag.h"
#include "far/detail/pointer.h"
#include "far/detail/retired.h"
#include "far/detail/thread_sanitizer.h"
#include "far/page_lost.h"
#include "far/scope.h"
#include "far/tag.h"

namespace far {

// Keys to values, each pair one far object, which comes and goes alone or with its page. An index in local memory names
// it: 17 to 29 bytes an entry.
//
// Any number of fibers and threads may use it at a time, except to move, swap or destroy it. Operations on one key are
// atomic with regard to each other. References that find() returns are valid until the scope ends, even if somebody
// else erases or replaces the entry meanwhile. Holders of references may see a value while update() or a user of
// find_mut() changes it in place, so they and the writer synchronise as for any object. get() copies a value as it was
// before or after an update().
//
// It grows a small part at a time, and moves no entry. No thread waits for the far tier while it holds a lock that
// others need for local entries.
//
// Hash and Equal are as for std::unordered_map. If both have is_transparent, look-ups take the same types as they do.
// Both, and the callbacks below, may use other far objects, but must not use the map unless stated otherwise. The key
// that Equal compares stays in place until the scope ends.
//
// A key or value is constructed from the arguments or, like far::string, from a tag and the arguments.
//
// When an entry is lost (far/page_lost.h), look-ups, update() and insert() of its key throw page_lost; put() and
// erase() drop it, and so do limits.
template <typename K, typename V, typename Hash = hash<K>, typename Equal = std::equal_to<>>
class hash_map {
  using entry = detail::hash_entry<K, V>;
  using state = detail::hash_state<K, V, Hash, Equal>;

 public:
  using key_type = K;
  using mapped_type = V;
  using size_type = std::size_t;
  using hasher = Hash;
  using key_equal = Equal;
  // The type of the copies that get() returns: V; std::string for far::string.
  using copy_type = typename detail::copied<V>::type;
  // Called for each entry that leaves because of a limit, or with its object, after it has left. May use the map. Its
  // exceptions reach the caller that added or updated an entry; that change has happened all the same. An entry that
  // left with its object is in the map again then, unless its key has been put meanwhile, or there is no memory for its
  // place. If several throw, the first reaches the caller.
  using eviction_callback = typename state::eviction_callback;

  explicit hash_map(const tag& in, const Hash& hash_of = {}, const Equal& equal = {})
      : hash_map(in, hash_map_limits{}, {}, hash_of, equal) {}
  hash_map(const tag& in, hash_map_limits limits, eviction_callback on_eviction = {}, const Hash& hash_of = {},
           const Equal& equal = {})
      : state_(std::make_unique<state>(in, in, limits, std::move(on_eviction), hash_of, equal)) {
    detail::require_relocatable<K>();
    detail::require_relocatable<V>();
  }
  // A cache of the entries in local memory. An entry that has left is dropped at the next change of the map, at the
  // earliest, unless it was found again before. An entry may stay if it leaves while memory is very short, or with more
  // than 16384 others between two changes. Dropping takes no fetch, unless there is a callback, or an entry has
  // anything to destroy. Takes a tag until it is destroyed: throws std::runtime_error as far::tag does. Requires: Hash
  // can be called on any thread, and uses no far memory; a key and a value share a page with others.
  hash_map(runtime& home, while_local leaving, hash_map_limits limits = {}, eviction_callback on_eviction = {},
           const Hash& hash_of = {}, const Equal& equal = {})
    requires(!detail::has_far_pointers<K>)
      : hash_map(home, leaving, std::make_shared<detail::left_entries>(), limits, std::move(on_eviction), hash_of,
                 equal) {
    static_assert(
        detail::shares_a_page<entry>,
        "entries of a map that is far::while_local leave alone or with their page: key and value have at most "
        "4072 bytes together, and less if they are aligned to more than 16");
  }
  // O(1). A moved-from map may only be destroyed, swapped or assigned to.
  hash_map(hash_map&&) noexcept = default;
  hash_map& operator=(hash_map&&) noexcept = default;
  ~hash_map() = default;

  void swap(hash_map& other) noexcept { state_.swap(other.state_); }
  friend void swap(hash_map& a, hash_map& b) noexcept { a.swap(b); }

  [[nodiscard]] const tag& home() const noexcept { return state_->home; }
  // While others change the map, a recent number.
  [[nodiscard]] std::size_t size() const noexcept { return state_->count.load(std::memory_order_relaxed); }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  // Of the entries, as for hash_map_limits::bytes.
  [[nodiscard]] std::size_t entry_bytes() const noexcept { return state_->weight.load(std::memory_order_relaxed); }
  // Of the index, in local memory. Slow.
  [[nodiscard]] std::size_t index_bytes() const {
    std::size_t bytes = sizeof(state);
    for (detail::hash_shard& shard : state_->shards) {
      const std::shared_lock guard(shard.readers());
      bytes += shard.index.local_bytes();
    }
    return bytes;
  }

  // ---- look-up ----

  // The value, in place until the scope ends; nullptr when there is none. Waits when the entry is remote. What a value
  // comes to own through find_mut() is counted (hash_map_limits::bytes) from its next update() on.
  template <typename Q = K>
  [[nodiscard, gnu::always_inline]] const V* find(const scope& in, const Q& key) const {
    return value_of(find_entry<false>(in, as_key(key), true));
  }
  template <typename Q = K>
  [[nodiscard, gnu::always_inline]] V* find_mut(const scope& in, const Q& key) {
    return value_of(find_entry<true>(in, as_key(key), true));
  }
  template <typename Q = K>
  [[nodiscard, gnu::always_inline]] const V* find(const scope& in, const Q& key, non_temporal_t /*how*/) const {
    return value_of(find_entry<false>(in, as_key(key), false));
  }
  template <typename Q = K>
  [[nodiscard, gnu::always_inline]] V* find_mut(const scope& in, const Q& key, non_temporal_t /*how*/) {
    return value_of(find_entry<true>(in, as_key(key), false));
  }
  template <typename... How>
  const V* find(const scope&& the_scope_must_be_a_local_variable, How&&...) const = delete;
  template <typename... How>
  V* find_mut(const scope&& the_scope_must_be_a_local_variable, How&&...) = delete;

  template <typename Q = K>
  [[nodiscard]] bool contains(const Q& key) const {
    const scope here(home().home());
    return find(here, key) != nullptr;
  }

  // A copy of the value.
  template <typename Q = K>
    requires detail::can_be_copied<V>
  [[nodiscard]] std::optional<copy_type> get(const Q& key) const {
    const scope here(home().home());
    return copy_in<Q>(here, key, true);
  }
  template <typename Q = K>
    requires detail::can_be_copied<V>
  [[nodiscard]] std::optional<copy_type> get(const Q& key, non_temporal_t /*how*/) const {
    const scope here(home().home());
    return copy_in<Q>(here, key, false);
  }

  // Look many keys up, and fetch remote entries at the same time. values[i] belongs to keys[i]. Throw
  // std::invalid_argument when `values` is shorter than `keys`.
  template <typename Q>
  void find_many(const scope& in, std::span<const Q> keys, std::span<const V*> values) const {
    detail::require_room("find_many()", keys.size(), values.size());
    for_many(in, keys, [&](std::size_t i) { values[i] = find(in, keys[i]); });
  }
  template <typename Q>
    requires detail::can_be_copied<V>
  void get_many(std::span<const Q> keys, std::span<std::optional<copy_type>> values) const {
    detail::require_room("get_many()", keys.size(), values.size());
    for (std::size_t first = 0; first < keys.size(); first += keys_a_scope) {
      const scope here(home().home());
      const auto some = keys.subspan(first, std::min(keys_a_scope, keys.size() - first));
      for_many(here, some, [&](std::size_t i) { values[first + i] = copy_in<Q>(here, some[i], true); });
    }
  }
  template <typename... How>
  void find_many(const scope&& the_scope_must_be_a_local_variable, How&&...) const = delete;

  // Starts to fetch an entry, without waiting.
  template <typename Q = K>
  void prefetch(const Q& key) const {
    const scope here(home().home());
    bring_in(here, hash_of(as_key(key)));
  }

  // ---- change ---- Strong exception guarantee: when Hash, Equal or a constructor throws, nothing has happened.

  // Inserts, or replaces the value. Returns whether it inserted.
  template <typename Q = K, typename Value = V>
    requires detail::constructible_in<K, Q> && detail::constructible_in<V, Value>
  bool put(Q&& key, Value&& value) {
    return add<true>(std::forward<Q>(key), std::forward<Value>(value));
  }
  template <typename Q = K, typename Value = V>
    requires detail::constructible_in<K, Q> && detail::constructible_in<V, Value>
  bool insert_or_assign(Q&& key, Value&& value) {
    return add<true>(std::forward<Q>(key), std::forward<Value>(value));
  }
  // Inserts unless there is one already. Return whether they did. The arguments are not used if there was one when the
  // call began.
  template <typename Q = K, typename Value = V>
    requires detail::constructible_in<K, Q> && detail::constructible_in<V, Value>
  bool insert(Q&& key, Value&& value) {
    return add<false>(std::forward<Q>(key), std::forward<Value>(value));
  }
  template <typename Q = K, typename... Arguments>
    requires detail::constructible_in<K, Q> && detail::constructible_in<V, Arguments...>
  bool try_emplace(Q&& key, Arguments&&... arguments) {
    return add<false>(std::forward<Q>(key), std::forward<Arguments>(arguments)...);
  }

  // Calls change(V&), with exclusive access but for holders of references. Returns whether there is such a key. When
  // `change` throws, the value stays as `change` left it.
  template <typename Q = K, std::invocable<V&> Change>
  bool update(const Q& key, Change change) {
    const bool found = update_in_scope(as_key(key), change);
    state_->tidy();
    return found;
  }

  // Returns whether there was one.
  template <typename Q = K>
  bool erase(const Q& key) {
    const bool erased = erase_in_scope(as_key(key));
    state_->retired.look_after();
    return erased;
  }

  // Entries that others add meanwhile may stay.
  void clear() {
    std::array<std::unique_ptr<detail::retired_list::node>, detail::hash_shards> cleared;
    for (auto& all : cleared) all = std::make_unique<detail::retired_list::node>();
    for (std::size_t i = 0; i < cleared.size(); ++i) {
      detail::hash_shard& shard = state_->shards[i];
      std::unique_ptr<detail::retired_list::node>& all = cleared[i];
      const std::lock_guard guard(shard);
      state_->count.fetch_sub(shard.index.size(), std::memory_order_relaxed);
      state_->weight.fetch_sub(std::exchange(shard.weight, 0), std::memory_order_relaxed);
      ++shard.clears;
      shard.index.template clear<detail::end_entries<entry>>(*all);
      state_->retired.add(std::move(all));
    }
    state_->retired.look_after();
  }

  // Calls visit(const K&, const V&) for every entry, in no order, and prefetches those ahead. Entries that others add
  // or erase meanwhile may be visited or not. `visit` must not use the map. Throws page_lost in the end if some are
  // lost.
  template <std::invocable<const K&, const V&> Visit>
  void for_each(Visit visit) const {
    for_each_entry<false>([&](entry& one) { visit(std::as_const(one.key), std::as_const(one.value)); });
  }
  // visit(const K&, V&), as for update().
  template <std::invocable<const K&, V&> Visit>
  void for_each_mut(Visit visit) {
    for_each_entry<true>([&](entry& one) { visit(std::as_const(one.key), one.value); });
    state_->tidy();
  }

 private:
  hash_map(runtime& home, while_local leaving, const std::shared_ptr<detail::left_entries>& left,
           hash_map_limits limits, eviction_callback&& on_eviction, const Hash& hash_of, const Equal& equal)
      : state_(std::make_unique<state>(
            detail::own_tag(tag(home, leaving.how, before_leaving<entry>([left, hash_of](const entry& one) {
                                  left->note(detail::hashed(hash_of(one.key)));
                                }))),
            left, limits, std::move(on_eviction), hash_of, equal)) {
    detail::require_relocatable<K>();
    detail::require_relocatable<V>();
  }

  static constexpr bool is_transparent = requires {
    typename Hash::is_transparent;
    typename Equal::is_transparent;
  };
  // The form of a key that look-ups compare: the argument itself, if hash and comparison take it.
  template <typename Q>
  [[nodiscard]] static decltype(auto) as_key(const Q& key) {
    if constexpr (is_transparent || std::is_same_v<Q, K>) {
      return (key);
    } else {
      static_assert(std::constructible_from<K, const Q&>,
                    "look-ups by other types than the key's need a transparent hash and comparison");
      return K(key);
    }
  }

  // How far ahead a batch look-up prefetches entries, and their buckets, and how many of its keys share a scope.
  static constexpr std::size_t keys_ahead = 32, buckets_ahead = 48, keys_a_scope = 256;

  [[nodiscard]] static entry* at(std::byte* address) { return std::launder(reinterpret_cast<entry*>(address)); }
  [[nodiscard]] static V* value_of(entry* found) { return found == nullptr ? nullptr : std::addressof(found->value); }
  template <typename Q>
  [[nodiscard]] detail::hashed hash_of(const Q& key) const {
    return detail::hashed(state_->hash_of(key));
  }
  [[nodiscard]] detail::hash_shard& shard_of(detail::hashed key_hash) const { return state_->shards[key_hash.shard()]; }

  // ---- look-up: without a lock when the entry is at hand ----

  // A look-up has a fast path that is inlined into the caller, and a slow path that is not. Loops over look-ups then
  // have several cache misses under way at a time, as far as the processor looks ahead
  // (docs/decisions/0046-short-look-ups.md).
  template <bool Write, typename Q>
  [[nodiscard, gnu::always_inline]] entry* find_entry(const scope& in, const Q& key, bool lasting) const {
    const detail::hashed key_hash = hash_of(key);
    if (entry* const found = find_likely<Write>(in, key, key_hash)) [[likely]]
      return found;
    return find_further<Write>(in, key, key_hash, lasting);
  }
  // The first entry with the same fingerprint in the bucket where the key most likely is.
  template <bool Write, typename Q>
  [[nodiscard, gnu::always_inline]] entry* find_likely(const scope& in, const Q& key, detail::hashed key_hash) const {
    detail::hash_bucket* const bucket = shard_of(key_hash).index.likely_bucket(key_hash.print());
    const unsigned alike = bucket == nullptr ? 0 : bucket->find(key_hash.print());
    if (alike == 0) return nullptr;
    const auto slot = static_cast<unsigned>(std::countr_zero(alike));
    std::byte* const address = in.reach_if_ready(bucket->words[slot], Write);
    if (address == nullptr || !state_->equal(at(address)->key, key)) return nullptr;
    if (state_->is_limited) bucket->mark_used(slot);
    return at(address);
  }
  template <bool Write, typename Q>
  [[nodiscard]] entry* find_ready(const scope& in, const Q& key, detail::hashed key_hash) const {
    entry* found = nullptr;
    const auto is_it = [&](detail::hash_bucket& bucket, unsigned slot) {
      std::byte* const address = in.reach_if_ready(bucket.words[slot], Write);
      if (address == nullptr || !state_->equal(at(address)->key, key)) return false;
      found = at(address);
      return true;
    };
    const detail::hash_slot slot = shard_of(key_hash).index.find(key_hash.print(), is_it);
    if (slot && state_->is_limited) slot.bucket->mark_used(slot.number);
    return found;
  }
  // For an entry that is elsewhere or remote, or does not exist.
  template <bool Write, typename Q>
  [[nodiscard, gnu::noinline]] entry* find_further(const scope& in, const Q& key, detail::hashed key_hash,
                                                   bool lasting) const {
    if (entry* const found = find_ready<Write>(in, key, key_hash)) return found;
    const detail::hash_shard& shard = shard_of(key_hash);
    if (!shard.may_have(key_hash.print())) return nullptr;
    const std::shared_lock guard(shard.readers());
    return locate<Write>(in, shard, key, key_hash.print(), lasting).second;
  }
  // Requires: the shard is locked, in either mode.
  template <bool Write, typename Q>
  [[nodiscard]] std::pair<detail::hash_slot, entry*> locate(const scope& in, const detail::hash_shard& shard,
                                                            const Q& key, detail::fingerprint print,
                                                            bool lasting) const {
    entry* found = nullptr;
    const detail::hash_slot slot = shard.index.find(print, [&](detail::hash_bucket& bucket, unsigned number) {
      if (bucket.words[number].load(std::memory_order_relaxed) == 0) return false;  // a print of 0
      found = at(in.reach(bucket.words[number], Write, lasting));
      return static_cast<bool>(state_->equal(found->key, key));
    });
    if (!slot) return {};
    if (state_->is_limited) slot.bucket->mark_used(slot.number);
    return {slot, found};
  }

  template <typename Q>
  [[nodiscard]] std::optional<copy_type> copy_in(const scope& here, const Q& given, bool lasting) const {
    const auto& key = as_key(given);
    const detail::hashed key_hash = hash_of(key);
    const detail::hash_shard& shard = shard_of(key_hash);
    if constexpr (std::is_trivially_copyable_v<V> && !detail::has_thread_sanitizer) {
      // A writer that changes the value in place changes the version before and after (a sequence lock).
      const std::uint32_t version = shard.version();
      const entry* found = find_likely<false>(here, key, key_hash);
      if (found == nullptr) [[unlikely]]
        found = find_ready<false>(here, key, key_hash);
      if (found != nullptr) {
        const std::optional<copy_type> copy(found->value);
        if (shard.is_still(version)) return copy;
      }
    }
    if (!shard.may_have(key_hash.print())) return std::nullopt;
    const std::shared_lock guard(shard.readers());
    const entry* const found = locate<false>(here, shard, key, key_hash.print(), lasting).second;
    if (found == nullptr) return std::nullopt;
    return std::optional<copy_type>(std::in_place, detail::copied<V>::copy(found->value));
  }

  // Buckets are brought into the processor's cache first, then entries into local memory, or into the cache if they are
  // there already, and then they are used: each waits for what the one before has found, but not for other keys'.
  template <typename Q, typename Use>
  void for_many(const scope& in, std::span<const Q> keys, Use use) const {
    for (std::size_t i = 0; i < std::min(keys.size(), buckets_ahead); ++i) prefetch_bucket(hash_of(as_key(keys[i])));
    for (std::size_t i = 0; i < std::min(keys.size(), keys_ahead); ++i) bring_in(in, hash_of(as_key(keys[i])));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys.size() - i > buckets_ahead) prefetch_bucket(hash_of(as_key(keys[i + buckets_ahead])));
      if (keys.size() - i > keys_ahead) bring_in(in, hash_of(as_key(keys[i + keys_ahead])));
      use(i);
    }
  }
  void prefetch_bucket(detail::hashed key_hash) const {
    __builtin_prefetch(shard_of(key_hash).index.likely_bucket(key_hash.print()));
  }
  void bring_in(const scope& in, detail::hashed key_hash) const {
    const detail::hash_shard& shard = shard_of(key_hash);
    bool is_remote = false;
    static_cast<void>(shard.index.find(key_hash.print(), [&](detail::hash_bucket& bucket, unsigned slot) {
      const std::byte* const address = in.reach_if_ready(bucket.words[slot], false);
      is_remote |= address == nullptr;
      __builtin_prefetch(address);
      return false;
    }));
    if (!is_remote) return;
    const std::shared_lock guard(shard.readers());
    static_cast<void>(shard.index.find(key_hash.print(), [&](detail::hash_bucket& bucket, unsigned slot) {
      if (bucket.words[slot].load(std::memory_order_relaxed) != 0) {
        static_cast<void>(detail::prefetch(bucket.words[slot]));
      }
      return false;
    }));
  }

  // ---- change ----

  template <bool Replaces, typename Q, typename... Arguments>
  bool add(Q&& key, Arguments&&... arguments) {
    detail::give_way(home());
    const bool inserted = add_in_scope<Replaces>(std::forward<Q>(key), std::forward<Arguments>(arguments)...);
    state_->tidy();
    return inserted;
  }
  template <bool Replaces, typename Q, typename... Arguments>
  bool add_in_scope(Q&& given, Arguments&&... arguments) {
    // Fetches the entry of the key, if there is one, before the shard is locked.
    const scope here(home().home());
    detail::hashed key_hash;
    std::unique_ptr<detail::retired_list::node> old;
    {
      const auto& key = as_key(given);
      key_hash = hash_of(key);
      if (find_to_change<Replaces>(here, key, key_hash)) {
        if (!Replaces) return false;
        old = std::make_unique<detail::retired_list::node>();
      }
    }
    detail::owned_entry<entry> fresh(home(), state_->parts_home, std::forward<Q>(given),
                                     std::forward<Arguments>(arguments)...);
    const entry& mine = *at(here.reach(fresh.word(), false, true));
    const std::size_t weight = mine.counted_weight();
    detail::hash_shard& shard = shard_of(key_hash);
    const std::lock_guard guard(shard);
    const auto [slot, found] = locate<false>(here, shard, mine.key, key_hash.print(), true);
    if (!slot) {
      shard.index.insert(key_hash.print(), fresh.word(), state_->retired);
      state_->count.fetch_add(1, std::memory_order_relaxed);
      state_->add_weight(shard, weight);
      return true;
    }
    if (!Replaces) return false;
    if (old == nullptr) old = std::make_unique<detail::retired_list::node>();
    state_->add_weight(shard, weight - found->counted_weight());
    detail::move_owner(slot.word(), old->word);
    detail::move_owner(fresh.word(), slot.word());
    state_->retire(std::move(old));
    return false;
  }

  template <typename Q, typename Change>
  bool update_in_scope(const Q& key, Change& change) {
    const scope here(home().home());
    const detail::hashed key_hash = hash_of(key);
    if (find_entry<true>(here, key, true) == nullptr) return false;
    detail::hash_shard& shard = shard_of(key_hash);
    const std::lock_guard guard(shard);
    entry* const found = locate<true>(here, shard, key, key_hash.print(), true).second;
    if (found == nullptr) return false;
    const typename state::weighing weighed(*state_, shard, *found);
    change(found->value);
    return true;
  }

  template <typename Q>
  bool erase_in_scope(const Q& key) {
    const scope here(home().home());
    const detail::hashed key_hash = hash_of(key);
    bool was_lost = false;
    if (!find_to_change<true>(here, key, key_hash, &was_lost)) return was_lost;
    auto old = std::make_unique<detail::retired_list::node>();
    detail::hash_shard& shard = shard_of(key_hash);
    const std::lock_guard guard(shard);
    const auto [slot, found] = locate<false>(here, shard, key, key_hash.print(), true);
    if (!slot) return was_lost;
    state_->add_weight(shard, std::size_t{0} - found->counted_weight());
    state_->count.fetch_sub(1, std::memory_order_relaxed);
    shard.index.erase(slot, old->word);
    state_->retire(std::move(old));
    return true;
  }

  // Whether there is an entry for the key, which is fetched. DropsLost: if there is one with its hash that is lost,
  // that was the key's, but for one time in 10^11, and is of no use to anybody: it is dropped. Otherwise throws
  // page_lost.
  template <bool DropsLost, typename Q>
  [[nodiscard]] bool find_to_change(const scope& in, const Q& key, detail::hashed key_hash, bool* was_lost = nullptr) {
    while (true) {
      try {
        return find_entry<false>(in, key, true) != nullptr;
      } catch (const page_lost&) {
        if (!DropsLost || state_->drop_lost(in, key_hash) == 0) throw;
        if (was_lost != nullptr) *was_lost = true;
      }
    }
  }

  template <bool Write, typename Visit>
  void for_each_entry(Visit visit) const {
    std::exception_ptr lost;
    for (detail::hash_shard& shard : state_->shards) {
      const auto guard = [&shard] {
        if constexpr (Write) return std::unique_lock(shard);
        if constexpr (!Write) return std::shared_lock(shard.readers());
      }();
      detail::walk_ahead walk([&](detail::owner_word& word) {
        const scope here(home().home());
        entry* one = nullptr;
        try {
          one = at(here.reach(word, Write, true));
        } catch (const page_lost&) {
          lost = std::current_exception();
          return;
        }
        if constexpr (Write) {
          const typename state::weighing weighed(*state_, shard, *one);
          visit(*one);
        } else {
          visit(*one);
        }
      });
      shard.index.for_each_bucket([&](detail::hash_bucket& bucket) { walk(bucket); });
      walk.finish();
    }
    if (lost != nullptr) std::rethrow_exception(lost);
  }

  std::unique_ptr<state> state_;
};

}  // namespace far
