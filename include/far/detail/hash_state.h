// The state of a far::hash_map, which stays where it is when the map moves, and how entries leave it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "far/detail/hash_entry.h"
#include "far/detail/hash_shard.h"
#include "far/detail/left_entries.h"
#include "far/detail/own_tag.h"
#include "far/detail/retired.h"
#include "far/page_lost.h"
#include "far/scope.h"
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
  // Without what its key and value own.
  static constexpr std::size_t entry_weight = entry::own_bytes(sizeof(entry));

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

  // ---- weights, under a shard's lock ----

  // Adds up modulo 2^64.
  void add_weight(hash_shard& shard, std::size_t more) {
    shard.weight += more;
    weight.fetch_add(more, std::memory_order_relaxed);
  }
  // Accounts for the change of an entry's weight during its lifetime, and for those that users of find_mut() have made
  // before.
  class weighing {
   public:
    weighing(hash_state& map, hash_shard& shard, entry& one) : map_(map), shard_(shard), one_(one) {}
    ~weighing() {
      if constexpr (!entry::weighs_alike) {
        const std::size_t now = one_.weight();
        map_.add_weight(shard_, now - std::exchange(one_.counted, now));
      }
    }
    weighing(const weighing&) = delete;
    weighing& operator=(const weighing&) = delete;

   private:
    hash_state& map_;
    hash_shard& shard_;
    entry& one_;
  };

  // ---- entries that leave ----

  using retired_entry = std::unique_ptr<retired_list::node>;

  // Nobody finds it any more, but some may still be using it.
  void retire(retired_entry old) noexcept {
    old->end = [](retired_list::node& self) noexcept { destroy<entry>(self.word); };
    retired.add(std::move(old));
  }

  // After a change, outside scopes and locks: drops entries that have left, and evicts down to the limits. The change
  // has happened: what needs local memory where there is none is left to the next one.
  void tidy() {
    if (left != nullptr && left->has_any()) [[unlikely]]
      drop_left();
    if (is_limited) [[unlikely]] {
      while (is_over() && evict_one()) {
      }
    }
    retired.look_after();
  }

  // Drops entries with that hash whose keys are lost. Returns how many.
  std::size_t drop_lost(const scope& in, hashed key_hash) {
    hash_shard& shard = shards[key_hash.shard()];
    for (std::size_t dropped = 0;; ++dropped) {
      auto old = std::make_unique<retired_list::node>();
      const std::lock_guard guard(shard);
      const hash_slot lost = shard.index.find(key_hash.print(), [&](const hash_bucket& bucket, unsigned slot) {
        owner_word& word = bucket.words[slot];
        if (word.load(std::memory_order_relaxed) == 0) return false;
        return !unless_lost([&] { static_cast<void>(hash_of(at(in.reach(word, false, false))->key)); });
      });
      if (!lost) return dropped;
      shard.index.erase(lost, old->word);
      count.fetch_sub(1, std::memory_order_relaxed);
      add_weight(shard, std::size_t{0} - entry_weight);
      retire(std::move(old));
    }
  }

 private:
  // An entry that was taken out of the index.
  struct victim {
    retired_entry old{};
    hash_shard* shard = nullptr;
    std::uint32_t clears = 0;  // of the shard, until then
    fingerprint print = 0;
    // Whether the map has the entry again when the callback throws.
    bool comes_back = false;
  };

  [[nodiscard]] static entry* at(std::byte* address) { return std::launder(reinterpret_cast<entry*>(address)); }
  [[nodiscard]] bool is_over() const {
    return (limits.entries != 0 && count.load(std::memory_order_relaxed) > limits.entries) ||
           (limits.bytes != 0 && weight.load(std::memory_order_relaxed) > limits.bytes);
  }

  bool evict_one() {
    victim found{.old = retired_entry(new (std::nothrow) retired_list::node)};
    if (found.old == nullptr) return false;
    for (std::size_t looked = 0; looked < hash_shards; ++looked) {
      hash_shard& shard = shards[next_shard.fetch_add(1, std::memory_order_relaxed) % hash_shards];
      if (!take_victim(shard, found)) continue;
      end_victim(std::move(found));
      return true;
    }
    return false;
  }
  bool take_victim(hash_shard& shard, victim& into) {
    const std::lock_guard guard(shard);
    return take_out(shard, shard.index.next_victim(), into);
  }
  // Drops the entries that were noted and are not local. All are taken out before the first callback, which may bring
  // others back with its entry's page. What a callback throws keeps no other entry from leaving.
  void drop_left() {
    std::vector<victim> gone;
    left->take_all([&](hashed key_hash) { take_left(key_hash, gone); });
    std::exception_ptr thrown;
    for (victim& one : gone) {
      try {
        end_victim(std::move(one));
      } catch (...) {
        if (thrown == nullptr) thrown = std::current_exception();
      }
    }
    if (thrown != nullptr) std::rethrow_exception(thrown);
  }
  // Takes out an entry with that hash that is not local. Without memory it is noted again, for the next change.
  void take_left(hashed key_hash, std::vector<victim>& gone) {
    victim found{.comes_back = true};
    try {
      found.old = std::make_unique<retired_list::node>();
      if (gone.size() == gone.capacity()) gone.reserve(2 * gone.size() + 1);
    } catch (const std::bad_alloc&) {
      return left->note(key_hash);
    }
    hash_shard& shard = shards[key_hash.shard()];
    const scope here(home.home());
    const std::lock_guard guard(shard);
    const hash_slot slot = shard.index.find(key_hash.print(), [](const hash_bucket& bucket, unsigned number) {
      const owner_word& word = bucket.words[number];
      return word.load(std::memory_order_relaxed) != 0 && !is_local(word);
    });
    if (take_out(shard, slot, found)) gone.push_back(std::move(found));
  }
  bool take_out(hash_shard& shard, const hash_slot& from, victim& into) {
    if (!from) return false;
    into.print = from.bucket->prints[from.number].load(std::memory_order_relaxed);
    shard.index.erase(from, into.old->word);
    into.shard = &shard;
    into.clears = shard.clears;
    count.fetch_sub(1, std::memory_order_relaxed);
    if constexpr (entry::weighs_alike) add_weight(shard, std::size_t{0} - entry_weight);
    return true;
  }
  void end_victim(victim gone) {
    struct at_end {
      hash_state& map;
      retired_entry& old;
      ~at_end() { map.retire(std::move(old)); }
    } const retires{*this, gone.old};
    if (entry::weighs_alike && !on_eviction) return;
    const scope here(home.home());
    const entry* one = nullptr;
    static_cast<void>(unless_lost([&] { one = at(here.reach(gone.old->word, false, false)); }));
    if constexpr (!entry::weighs_alike) {
      const std::lock_guard guard(*gone.shard);
      // What was cleared meanwhile has taken its weight along. What a lost one owned leaks, and is still counted.
      if (gone.shard->clears == gone.clears) {
        add_weight(*gone.shard, std::size_t{0} - (one == nullptr ? entry_weight : one->counted));
      }
    }
    if (one == nullptr || !on_eviction) return;
    try {
      on_eviction(one->key, one->value);
    } catch (...) {
      if (gone.comes_back) put_back(here, gone, *one);
      throw;
    }
  }
  // Unless somebody has put its key meanwhile. Needs no memory if nobody has put anything.
  void put_back(const scope& here, victim& gone, const entry& one) {
    const std::lock_guard guard(*gone.shard);
    if (gone.shard->clears != gone.clears) return;
    const hash_slot newer = gone.shard->index.find(gone.print, [&](hash_bucket& bucket, unsigned number) {
      owner_word& word = bucket.words[number];
      return word.load(std::memory_order_relaxed) != 0 && equal(at(here.reach(word, false, true))->key, one.key);
    });
    if (newer) return;
    gone.shard->index.insert(gone.print, gone.old->word, retired);
    count.fetch_add(1, std::memory_order_relaxed);
    add_weight(*gone.shard, one.counted_weight());
  }
};

}  // namespace detail
}  // namespace far
