// The index of far::hash_map: it finds the far object with the entry for a hash (docs/containers.md, decision 35).
//
// Extendible hashing (Fagin et al., 1979). A directory names segments by the first bits of the hash. A segment is a
// small hash table of its own; when it is full it is split in two, and no other is touched. A bucket is a cache line:
// five words that own entries, and 32 bits of the hash of each, enough to find its place in any segment without the
// entry.
//
// One writer at a time changes it. Readers need no lock as long as they are in a scope: segments and directories that
// were replaced are kept until their scopes have ended (far/detail/retired.h). A reader may miss an entry that is being
// moved, but never finds one that was not there.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "far/detail/pointer.h"
#include "far/detail/retired.h"
#include "far/detail/thread_sanitizer.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace far::detail {

// The part of a hash that the index keeps.
using fingerprint = std::uint32_t;

struct alignas(64) hash_bucket {
  static constexpr unsigned slots = 5;

  std::array<std::atomic<fingerprint>, slots> prints{};
  // Entries of this or earlier buckets that lie further on because this one was full. 0: nothing further on to look at.
  std::atomic<std::uint16_t> passed{0};
  // A bit for each slot that was used since the eviction hand came by.
  std::atomic<std::uint8_t> used{0};
  mutable std::array<owner_word, slots> words{};  // 0: the slot is free

  // A bit for each slot with this fingerprint. Without a branch, since processors could not predict it.
  [[nodiscard, gnu::always_inline]] unsigned find(fingerprint print) const noexcept {
    static_assert(slots == 5);
#if defined(__SSE2__) && !defined(FAR_THREAD_SANITIZER)
    // The processor reads each fingerprint in one piece, and in order with later reads.
    const __m128i four = _mm_load_si128(reinterpret_cast<const __m128i*>(prints.data()));
    const __m128i alike = _mm_cmpeq_epi32(four, _mm_set1_epi32(static_cast<int>(print)));
    const unsigned fifth = is_alike(4, print);
    std::atomic_signal_fence(std::memory_order_acquire);
    return static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(alike))) | fifth;
#else
    return is_alike(0, print) | is_alike(1, print) | is_alike(2, print) | is_alike(3, print) | is_alike(4, print);
#endif
  }

  void mark_used(unsigned slot) noexcept {
    const auto bit = static_cast<std::uint8_t>(1u << slot);
    if ((used.load(std::memory_order_relaxed) & bit) == 0) used.fetch_or(bit, std::memory_order_relaxed);
  }
  // Returns whether it was used, and clears the bit.
  [[nodiscard]] bool take_used(unsigned slot) noexcept {
    const auto bit = static_cast<std::uint8_t>(1u << slot);
    if ((used.load(std::memory_order_relaxed) & bit) == 0) return false;
    used.fetch_and(static_cast<std::uint8_t>(~bit), std::memory_order_relaxed);
    return true;
  }

 private:
  [[nodiscard]] unsigned is_alike(unsigned slot, fingerprint print) const noexcept {
    return static_cast<unsigned>(prints[slot].load(std::memory_order_acquire) == print) << slot;
  }
};
static_assert(sizeof(hash_bucket) == 64);

struct alignas(64) hash_segment {
  static constexpr unsigned most_size_bits = 6;  // 64 buckets, 4 KiB

  const std::uint8_t size_bits;  // 2^n buckets
  const std::uint8_t depth;      // how many bits of the fingerprint the directory uses to find it
  std::uint32_t count = 0;
  // A further segment, for entries that no bit tells apart.
  std::atomic<hash_segment*> more{nullptr};

  [[nodiscard]] static hash_segment* make(unsigned depth, unsigned size_bits) {
    void* const room = ::operator new(sizeof(hash_segment) + (sizeof(hash_bucket) << size_bits),
                                      std::align_val_t{sizeof(hash_bucket)});
    auto* const created = new (room) hash_segment(depth, size_bits);
    std::uninitialized_default_construct_n(created->buckets(), created->bucket_count());
    return created;
  }
  // Requires: its words are null.
  static void unmake(hash_segment* one) noexcept { ::operator delete(one, std::align_val_t{sizeof(hash_bucket)}); }

  [[nodiscard]] hash_bucket* buckets() { return reinterpret_cast<hash_bucket*>(this + 1); }
  [[nodiscard]] std::size_t bucket_count() const { return std::size_t{1} << size_bits; }
  [[nodiscard]] std::size_t capacity() const { return bucket_count() * hash_bucket::slots * 7 / 8; }
  [[nodiscard]] bool is_full() const { return count >= capacity(); }

 private:
  hash_segment(unsigned of_depth, unsigned of_size)
      : size_bits(static_cast<std::uint8_t>(of_size)), depth(static_cast<std::uint8_t>(of_depth)) {}
};
static_assert(sizeof(hash_segment) == 64);

// A slot, or none.
struct hash_slot {
  hash_segment* segment = nullptr;
  hash_bucket* bucket = nullptr;
  unsigned number = 0;

  [[nodiscard]] explicit operator bool() const { return segment != nullptr; }
  [[nodiscard]] owner_word& word() const { return bucket->words[number]; }
};

class hash_index {
 public:
  hash_index() = default;
  hash_index(const hash_index&) = delete;
  hash_index& operator=(const hash_index&) = delete;
  // Requires: it is empty.
  ~hash_index() { free_directory(directory_.load(std::memory_order_relaxed)); }

  // The bucket where an entry with this fingerprint most likely is; nullptr if the index is empty.
  [[nodiscard, gnu::always_inline]] hash_bucket* likely_bucket(fingerprint print) const {
    const handle directory = directory_.load(std::memory_order_acquire);
    if (directory == 0) [[unlikely]]
      return nullptr;
    const handle named = segments_of(directory)[place_in(directory, print)].load(std::memory_order_acquire);
    return reinterpret_cast<hash_segment*>(named & ~low_bits)->buckets() + (named & low_bits & print);
  }

  // Calls is_it(bucket, slot) for occupied slots with this fingerprint until it returns true, and returns that slot.
  template <typename IsIt>
  [[nodiscard]] hash_slot find(fingerprint print, IsIt is_it) const {
    const handle directory = directory_.load(std::memory_order_acquire);
    if (directory == 0) return {};
    const handle named = segments_of(directory)[place_in(directory, print)].load(std::memory_order_acquire);
    auto* segment = reinterpret_cast<hash_segment*>(named & ~low_bits);
    std::size_t mask = named & low_bits;
    while (true) {
      hash_bucket* const buckets = segment->buckets();
      for (std::size_t at = print & mask, left = mask + 1; left > 0; at = (at + 1) & mask, --left) {
        hash_bucket& bucket = buckets[at];
        for (unsigned alike = bucket.find(print); alike != 0; alike &= alike - 1) {
          const auto slot = static_cast<unsigned>(std::countr_zero(alike));
          if (is_it(bucket, slot)) [[likely]]
            return {segment, &bucket, slot};
        }
        if (bucket.passed.load(std::memory_order_acquire) == 0) [[likely]]
          break;
      }
      segment = segment->more.load(std::memory_order_acquire);
      if (segment == nullptr) [[likely]]
        return {};
      mask = segment->bucket_count() - 1;
    }
  }

  // ---- for the writer ----

  // Puts the object into a slot, where readers find it. Strong exception guarantee: throws std::bad_alloc.
  void insert(fingerprint print, owner_word& object, retired_list& retired) {
    hash_segment* into = &make_room(print, retired);
    while (into->is_full()) into = into->more.load(std::memory_order_relaxed);
    place(*into, print, object);
    ++count_;
  }

  // Takes the object out of its slot.
  void erase(const hash_slot& at, owner_word& into) noexcept {
    const std::size_t mask = at.segment->bucket_count() - 1;
    const fingerprint print = at.bucket->prints[at.number].load(std::memory_order_relaxed);
    for (hash_bucket* one = &at.segment->buckets()[print & mask]; one != at.bucket;) {
      one->passed.fetch_sub(1, std::memory_order_release);
      one = &at.segment->buckets()[(static_cast<std::size_t>(one - at.segment->buckets()) + 1) & mask];
    }
    move_owner(at.word(), into);
    at.bucket->prints[at.number].store(0, std::memory_order_release);
    at.bucket->used.fetch_and(static_cast<std::uint8_t>(~(1u << at.number)), std::memory_order_relaxed);
    --at.segment->count;
    --count_;
  }

  [[nodiscard]] std::size_t size() const { return count_; }

  // The next entry that was not used since the hand came by last (CLOCK); none if it is empty.
  [[nodiscard]] hash_slot next_victim() noexcept {
    if (count_ == 0) return {};
    for (unsigned rounds = 0;; rounds += step_hand() ? 1u : 0u) {
      hash_segment* const segment = hand_segment();
      if (segment == nullptr) continue;
      hash_bucket& bucket = segment->buckets()[hand_bucket_];
      for (; hand_slot_ < hash_bucket::slots; ++hand_slot_) {
        if (bucket.words[hand_slot_].load(std::memory_order_relaxed) == 0) continue;
        // Readers that use entries as fast as the hand moves must not keep it going for ever.
        if (!bucket.take_used(hand_slot_) || rounds > 2) return {segment, &bucket, hand_slot_++};
      }
    }
  }

  // Calls visit(bucket, slot) for every entry. It must not change the index.
  template <typename Visit>
  void for_each(Visit visit) const {
    for_each_bucket(directory_.load(std::memory_order_acquire), [&](hash_bucket& bucket) {
      for (unsigned slot = 0; slot < hash_bucket::slots; ++slot) {
        if (bucket.words[slot].load(std::memory_order_relaxed) != 0) visit(bucket, slot);
      }
    });
  }
  template <typename Visit>
  void for_each_bucket(Visit visit) const {
    for_each_bucket(directory_.load(std::memory_order_acquire), visit);
  }

  // Bytes of local memory.
  [[nodiscard]] std::size_t local_bytes() const {
    std::size_t bytes = 0;
    const handle directory = directory_.load(std::memory_order_acquire);
    if (directory != 0) bytes += sizeof(handle) << (directory & low_bits);
    for_each_segment(directory,
                     [&](hash_segment& one) { bytes += sizeof one + one.bucket_count() * sizeof(hash_bucket); });
    return bytes;
  }

  // Passes everything to `into`, which frees the segments; before that, `end` must destroy the entries of a bucket.
  template <typename End>
  void clear(retired_list::node& into) noexcept {
    into.subject = reinterpret_cast<void*>(directory_.exchange(0, std::memory_order_acq_rel));
    into.end = [](retired_list::node& self) noexcept {
      const auto directory = reinterpret_cast<handle>(self.subject);
      End()([&](auto visit) { for_each_bucket(directory, visit); });
      free_directory(directory);
    };
    count_ = 0;
    hand_ = 0;
    hand_link_ = 0;
    hand_bucket_ = 0;
    hand_slot_ = 0;
  }

 private:
  // An address that is a multiple of 64, and in its lowest bits: of a directory, the logarithm of its number of
  // segments; of a segment, its number of buckets, less one.
  using handle = std::uintptr_t;
  using segments = std::atomic<handle>;
  static constexpr handle low_bits = 63;
  static_assert((std::size_t{1} << hash_segment::most_size_bits) - 1 <= low_bits);
  static constexpr unsigned print_bits = 32;
  // The others choose the bucket.
  static constexpr unsigned most_depth = print_bits - hash_segment::most_size_bits;

  [[nodiscard]] static segments* segments_of(handle directory) {
    return reinterpret_cast<segments*>(directory & ~low_bits);
  }
  [[nodiscard, gnu::always_inline]] static std::size_t place_in(handle directory, fingerprint print) {
    return static_cast<std::size_t>((std::uint64_t{print} << (directory & low_bits)) >> print_bits);
  }
  [[nodiscard]] static handle handle_of(hash_segment* one) {
    return one == nullptr ? 0 : reinterpret_cast<handle>(one) | (one->bucket_count() - 1);
  }
  [[nodiscard]] static hash_segment* segment_at(handle directory, std::size_t place) {
    return reinterpret_cast<hash_segment*>(segments_of(directory)[place].load(std::memory_order_relaxed) & ~low_bits);
  }

  [[nodiscard]] static handle make_directory(unsigned depth) {
    void* const room = ::operator new(sizeof(segments) << depth, std::align_val_t{low_bits + 1});
    std::uninitialized_value_construct_n(static_cast<segments*>(room), std::size_t{1} << depth);
    return reinterpret_cast<handle>(room) | depth;
  }
  static void unmake_directory(handle one) noexcept {
    ::operator delete(segments_of(one), std::align_val_t{low_bits + 1});
  }
  static void free_chain(hash_segment* first) noexcept {
    while (first != nullptr) {
      hash_segment* const next = first->more.load(std::memory_order_relaxed);
      hash_segment::unmake(first);
      first = next;
    }
  }
  // With its segments.
  static void free_directory(handle directory) noexcept {
    if (directory == 0) return;
    for (std::size_t at = 0; at < std::size_t{1} << (directory & low_bits);) {
      hash_segment* const one = segment_at(directory, at);
      at += std::size_t{1} << ((directory & low_bits) - one->depth);
      free_chain(one);
    }
    unmake_directory(directory);
  }

  template <typename Visit>
  static void for_each_segment(handle directory, Visit visit) {
    if (directory == 0) return;
    for (std::size_t at = 0; at < std::size_t{1} << (directory & low_bits);) {
      hash_segment* one = segment_at(directory, at);
      at += std::size_t{1} << ((directory & low_bits) - one->depth);
      for (; one != nullptr; one = one->more.load(std::memory_order_acquire)) visit(*one);
    }
  }
  template <typename Visit>
  static void for_each_bucket(handle directory, Visit visit) {
    for_each_segment(directory, [&](hash_segment& one) {
      for (std::size_t i = 0; i < one.bucket_count(); ++i) visit(one.buckets()[i]);
    });
  }

  // Requires: it is not full. The entry is not counted.
  static void place(hash_segment& into, fingerprint print, owner_word& object) noexcept {
    const std::size_t mask = into.bucket_count() - 1;
    for (std::size_t at = print & mask;; at = (at + 1) & mask) {
      hash_bucket& bucket = into.buckets()[at];
      for (unsigned slot = 0; slot < hash_bucket::slots; ++slot) {
        if (bucket.words[slot].load(std::memory_order_relaxed) != 0) continue;
        move_owner(object, bucket.words[slot]);
        bucket.prints[slot].store(print, std::memory_order_release);
        ++into.count;
        return;
      }
      bucket.passed.fetch_add(1, std::memory_order_release);
    }
  }

  // The segment for a fingerprint, with room in it or further along its chain.
  hash_segment& make_room(fingerprint print, retired_list& retired) {
    if (directory_.load(std::memory_order_relaxed) == 0) {
      auto first = std::unique_ptr<hash_segment, unmaker>(hash_segment::make(0, 0));
      const handle directory = make_directory(0);
      segments_of(directory)->store(handle_of(first.release()), std::memory_order_relaxed);
      directory_.store(directory, std::memory_order_release);
    }
    while (true) {
      const handle directory = directory_.load(std::memory_order_relaxed);
      hash_segment& first = *segment_at(directory, place_in(directory, print));
      hash_segment* last = &first;
      while (last->is_full() && last->more.load(std::memory_order_relaxed) != nullptr) {
        last = last->more.load(std::memory_order_relaxed);
      }
      if (!last->is_full()) return first;
      if (first.size_bits < hash_segment::most_size_bits) {
        replace(first, first.depth, first.size_bits + 1u, print, retired);
      } else if (can_split(first)) {
        if (first.depth == (directory & low_bits)) double_directory(retired);
        replace(first, first.depth + 1u, hash_segment::most_size_bits, print, retired);
      } else {
        last->more.store(hash_segment::make(first.depth, hash_segment::most_size_bits), std::memory_order_release);
      }
    }
  }

  // Whether more bits tell some of its entries apart.
  [[nodiscard]] static bool can_split(hash_segment& first) {
    bool has_one = false;
    fingerprint one = 0;
    for (hash_segment* at = &first; at != nullptr; at = at->more.load(std::memory_order_relaxed)) {
      for (std::size_t i = 0; i < at->bucket_count(); ++i) {
        for (unsigned slot = 0; slot < hash_bucket::slots; ++slot) {
          hash_bucket& bucket = at->buckets()[i];
          if (bucket.words[slot].load(std::memory_order_relaxed) == 0) continue;
          const fingerprint print = bucket.prints[slot].load(std::memory_order_relaxed);
          if (!std::exchange(has_one, true)) one = print;
          if ((one ^ print) >> hash_segment::most_size_bits != 0) return true;
        }
      }
    }
    return false;
  }

  void double_directory(retired_list& retired) {
    const handle before = directory_.load(std::memory_order_relaxed);
    auto old = std::make_unique<retired_list::node>();
    const handle larger = make_directory(static_cast<unsigned>(before & low_bits) + 1);
    for (std::size_t at = 0; at < std::size_t{2} << (before & low_bits); ++at) {
      segments_of(larger)[at].store(segments_of(before)[at / 2].load(std::memory_order_relaxed),
                                    std::memory_order_relaxed);
    }
    directory_.store(larger, std::memory_order_release);
    old->subject = reinterpret_cast<void*>(before);
    old->end = [](retired_list::node& self) noexcept { unmake_directory(reinterpret_cast<handle>(self.subject)); };
    retired.add(std::move(old));
  }

  // Moves the entries of a segment into one of another size, or into two of the next depth.
  void replace(hash_segment& first, unsigned depth, unsigned size_bits, fingerprint print, retired_list& retired) {
    const handle directory = directory_.load(std::memory_order_relaxed);
    const std::size_t places = std::size_t{1} << ((directory & low_bits) - first.depth);
    const std::size_t from = place_in(directory, print) & ~(places - 1);
    const std::size_t targets = depth == first.depth ? 1 : 2;
    auto old = std::make_unique<retired_list::node>();
    std::array<std::unique_ptr<hash_segment, unmaker>, 2> fresh;
    for (std::size_t i = 0; i < targets; ++i) {
      // Each may have to hold all entries, if the segment has a chain.
      hash_segment* chain = &first;
      fresh[i].reset(hash_segment::make(depth, size_bits));
      hash_segment* last = fresh[i].get();
      while ((chain = chain->more.load(std::memory_order_relaxed)) != nullptr) {
        last->more.store(hash_segment::make(depth, size_bits), std::memory_order_relaxed);
        last = last->more.load(std::memory_order_relaxed);
      }
    }
    const unsigned shift = print_bits - depth;
    for (hash_segment* at = &first; at != nullptr; at = at->more.load(std::memory_order_relaxed)) {
      for (std::size_t i = 0; i < at->bucket_count(); ++i) {
        hash_bucket& bucket = at->buckets()[i];
        for (unsigned slot = 0; slot < hash_bucket::slots; ++slot) {
          if (bucket.words[slot].load(std::memory_order_relaxed) == 0) continue;
          const fingerprint one = bucket.prints[slot].load(std::memory_order_relaxed);
          hash_segment* into = fresh[targets == 1 ? 0 : (one >> shift) & 1].get();
          while (into->is_full()) into = into->more.load(std::memory_order_relaxed);
          place(*into, one, bucket.words[slot]);
        }
      }
    }
    for (std::size_t at = 0; at < places; ++at) {
      hash_segment* const into = fresh[targets == 1 ? 0 : at * 2 / places].get();
      segments_of(directory)[from + at].store(handle_of(into), std::memory_order_release);
    }
    for (auto& one : fresh) static_cast<void>(one.release());
    old->subject = &first;
    old->end = [](retired_list::node& self) noexcept { free_chain(static_cast<hash_segment*>(self.subject)); };
    retired.add(std::move(old));
  }

  struct unmaker {
    void operator()(hash_segment* one) const noexcept { free_chain(one); }
  };

  // The position of the hand: the first bits of fingerprints, a segment of their chain, a bucket of that, and a slot.
  [[nodiscard]] hash_segment* hand_segment() const {
    const handle directory = directory_.load(std::memory_order_relaxed);
    hash_segment* at = segment_at(directory, place_in(directory, hand_));
    for (unsigned link = hand_link_; link > 0 && at != nullptr; --link) at = at->more.load(std::memory_order_relaxed);
    return at == nullptr || hand_bucket_ >= at->bucket_count() ? nullptr : at;
  }
  // Returns whether it begins a new round.
  bool step_hand() noexcept {
    hand_slot_ = 0;
    const handle directory = directory_.load(std::memory_order_relaxed);
    hash_segment* at = segment_at(directory, place_in(directory, hand_));
    const unsigned depth = at->depth;
    for (unsigned link = hand_link_; link > 0 && at != nullptr; --link) at = at->more.load(std::memory_order_relaxed);
    if (at != nullptr && ++hand_bucket_ < at->bucket_count()) return false;
    hand_bucket_ = 0;
    if (at != nullptr && at->more.load(std::memory_order_relaxed) != nullptr) {
      ++hand_link_;
      return false;
    }
    hand_link_ = 0;
    const std::uint64_t width = std::uint64_t{1} << (print_bits - depth);
    const std::uint64_t next = (hand_ / width + 1) * width;
    hand_ = static_cast<fingerprint>(next);
    return next >> print_bits != 0;
  }

  std::atomic<handle> directory_{0};
  std::size_t count_ = 0;
  fingerprint hand_ = 0;
  unsigned hand_link_ = 0;
  std::size_t hand_bucket_ = 0;
  unsigned hand_slot_ = 0;
};

}  // namespace far::detail
