// A part of a far::hash_map: the entries whose hash begins alike, and their lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "far/detail/hash_index.h"
#include "far/detail/pointer.h"
#include "far/detail/shared_lock.h"
#include "far/detail/thread_sanitizer.h"
#include "far/tag.h"

namespace far::detail {

inline constexpr unsigned hash_shard_bits = 5;
inline constexpr std::size_t hash_shards = std::size_t{1} << hash_shard_bits;

// A hash as the map uses it. It is mixed, since the hash of a user's type may be no more than the key.
class hashed {
 public:
  hashed() = default;
  explicit hashed(std::size_t users) {
    const auto product = static_cast<unsigned __int128>(users ^ 0x9e3779b97f4a7c15u) * 0xd1342543de82ef95u;
    value_ = static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
  }
  // The same bits make the same hash; the lowest of them do not matter.
  [[nodiscard]] static hashed of_bits(std::uint64_t bits) {
    hashed copy;
    copy.value_ = bits;
    return copy;
  }
  [[nodiscard]] std::uint64_t bits() const { return value_; }
  [[nodiscard]] std::size_t shard() const { return value_ >> (64 - hash_shard_bits); }
  [[nodiscard]] fingerprint print() const { return static_cast<fingerprint>(value_ >> (32 - hash_shard_bits)); }

 private:
  std::uint64_t value_ = 0;
};

// As a lock, it is for writers.
struct alignas(64) hash_shard {
  hash_index index;
  // Written by writers.
  std::size_t weight = 0;    // of the entries
  std::uint32_t clears = 0;  // how often it has been cleared

  void lock() noexcept {
    lock_.lock();
#if defined(FAR_THREAD_SANITIZER)
    version_.fetch_add(1, std::memory_order_acq_rel);
#else
    version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
#endif
  }
  void unlock() noexcept {
    version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    lock_.unlock();
  }
  // For readers. Writers use the shard itself.
  [[nodiscard]] shared_lock& readers() const noexcept { return lock_; }

  // Odd while there is a writer.
  [[nodiscard]] std::uint32_t version() const noexcept { return version_.load(std::memory_order_acquire); }
  // Whether nobody has written since that version, nor was writing then.
  [[nodiscard]] bool is_still(std::uint32_t version) const noexcept {
#if defined(FAR_THREAD_SANITIZER)
    return version % 2 == 0 && version_.fetch_add(0, std::memory_order_acq_rel) == version;
#else
    std::atomic_thread_fence(std::memory_order_acquire);
    return version % 2 == 0 && version_.load(std::memory_order_relaxed) == version;
#endif
  }

  // False only if there was no entry with this fingerprint at some moment of the call. Requires: the caller is in a
  // scope.
  [[nodiscard]] bool may_have(fingerprint print) const noexcept {
    const std::uint32_t before = version();
    const hash_slot found = index.find(print, [](const hash_bucket& bucket, unsigned slot) {
      return bucket.words[slot].load(std::memory_order_relaxed) != 0;
    });
    return found || !is_still(before);
  }

 private:
  mutable std::atomic<std::uint32_t> version_{0};
  mutable shared_lock lock_;
};

// An entry that is not in the map yet. Far memory that its key and value own has another tag.
template <typename Entry>
class owned_entry {
 public:
  template <typename... Arguments>
  owned_entry(const tag& in, const tag& parts_in, Arguments&&... arguments) {
    make_object<Entry>(in, word_, parts_in, std::forward<Arguments>(arguments)...);
  }
  ~owned_entry() { destroy<Entry>(word_); }
  owned_entry(const owned_entry&) = delete;
  owned_entry& operator=(const owned_entry&) = delete;

  [[nodiscard]] owner_word& word() { return word_; }

 private:
  owner_word word_{0};
};

// A walk over buckets that prefetches the entries ahead, and calls use(word) for each entry. Call finish() at the end.
template <typename Use>
class walk_ahead {
 public:
  explicit walk_ahead(Use use) : use_(std::move(use)) {}

  void operator()(hash_bucket& bucket) {
    for (owner_word& word : bucket.words) {
      if (word.load(std::memory_order_relaxed) != 0) static_cast<void>(prefetch(word));
    }
    if (hash_bucket* const oldest = std::exchange(ahead_[next_++ % ahead_.size()], &bucket)) use_all(*oldest);
  }
  void finish() {
    for (std::size_t i = 0; i < ahead_.size(); ++i) {
      if (hash_bucket* const oldest = std::exchange(ahead_[next_++ % ahead_.size()], nullptr)) use_all(*oldest);
    }
  }

 private:
  void use_all(hash_bucket& bucket) {
    for (owner_word& word : bucket.words) {
      if (word.load(std::memory_order_relaxed) != 0) use_(word);
    }
  }

  Use use_;
  std::array<hash_bucket*, 8> ahead_{};  // those that were requested, in a ring
  std::size_t next_ = 0;
};

// Destroys the entries of buckets that have left the map.
template <typename Entry>
struct end_entries {
  template <typename ForEachBucket>
  void operator()(ForEachBucket for_each_bucket) const noexcept {
    if constexpr (std::is_trivially_destructible_v<Entry>) {
      for_each_bucket([](hash_bucket& bucket) {
        for (owner_word& word : bucket.words) release(word, may_own_others<Entry>);
      });
    } else {
      walk_ahead walk([](owner_word& word) { destroy<Entry>(word); });
      for_each_bucket([&](hash_bucket& bucket) { walk(bucket); });
      walk.finish();
    }
  }
};

}  // namespace far::detail
