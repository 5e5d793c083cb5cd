// The pages of `zmem:`, by slot: a table of where each is, and the zones that hold them.
//
// A page whose 8-byte words are all the same is its word in the table; another one is compressed; one that stays larger
// than three quarters of a page is kept as it is.
//
// Two kinds of locks. One of many stripes is held to look at or change the bytes of a slot: for the time of a copy, or
// of decompressing a page, and of compressing one where only a part of it is written. The store's own lock is for zones
// and promises, and taken inside of it for some tens of nanoseconds. Whole pages are compressed without any.
//
// An object whose slot's entry does not lead to it is not complete yet, or is free: compaction leaves it alone.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/zmem/codec.h"
#include "backend/zmem/zones.h"
#include "base/spin_lock.h"
#include "platform/local_memory.h"

namespace far::backend {

// The codecs' state and buffers, for one thread at a time.
class page_codec {
 public:
  explicit page_codec(codec_choice chosen) : pages(chosen), page_(page_bytes), packed_(page_bytes) {}
  codec pages;
  [[nodiscard]] std::byte* page() { return page_.data(); }
  [[nodiscard]] std::byte* packed() { return packed_.data(); }

 private:
  using local_bytes = std::vector<std::byte, platform::local_allocator<std::byte>>;
  local_bytes page_;
  local_bytes packed_;
};

class page_store {
 public:
  // The largest number of a slot, and one more.
  static constexpr std::uint64_t most_slots = std::uint64_t{1} << 32;

  page_store(std::uint64_t capacity_bytes, std::uint64_t slots);
  ~page_store();
  page_store(const page_store&) = delete;
  page_store& operator=(const page_store&) = delete;

  // For as many slots, which are empty: their first writes find room. Compacts if it must; returns whether there is.
  [[nodiscard]] bool promise(std::uint64_t slots);
  void take_back(std::uint64_t slots);

  // Thread-safe, also for different bytes of one slot. Requires: `first` and those after it have been promised room.
  // Returns 0; ENOSPC of a write: the slot has its old bytes, and this is not its first write; EIO of a read: the bytes
  // are damaged.
  [[nodiscard]] int write(slot_id first, std::uint64_t offset, std::span<const std::byte> bytes, page_codec& with);
  [[nodiscard]] int read(slot_id first, std::uint64_t offset, std::span<std::byte> into, page_codec& with);

  // The slot's bytes are gone, and the promise with them. Requires: no transfer of it is under way.
  void free(slot_id slot);

  // One thread at a time. Compacts some, and gives frames back. Returns whether there is more to do.
  bool tend();
  // Whether frames of free zones are kept for the next pages. From false on, tend() gives all of them back.
  void keep_frames(bool kept);
  [[nodiscard]] bool wants_tending() const { return wants_tending_.load(std::memory_order_relaxed); }

  [[nodiscard]] std::uint64_t occupied_bytes() const;
  [[nodiscard]] std::uint64_t capacity_bytes() const FAR_UNCHECKED_LOCKING {
    return zones_.capacity_bytes();
  }  // constant

  // Around a fork, which copies everything. In the child: the store is without the slots below `end` that `is_claimed`
  // knows nothing of.
  void lock_for_fork() FAR_ACQUIRE(lock_) { lock_.lock(); }
  void unlock_after_fork() FAR_RELEASE(lock_) { lock_.unlock(); }
  template <typename IsClaimed>
  void keep_in_child(slot_id end, IsClaimed is_claimed);

  void validate() const;

 private:
  enum class kind : std::uint8_t { empty, filled, packed, whole };
  // Zeros are an empty one. The word is in two halves, so that an entry takes 12 bytes.
  struct entry {
    std::uint32_t high = 0;
    std::uint32_t low = 0;
    std::uint16_t length = 0;
    kind is = kind::empty;
    [[nodiscard]] bool has_object() const { return is == kind::packed || is == kind::whole; }
    [[nodiscard]] object_place place() const { return {.zone = high, .index = low}; }
    void set_place(object_place where) {
      high = where.zone;
      low = where.index;
    }
    // All that a filled page repeats.
    [[nodiscard]] std::uint64_t word() const { return std::uint64_t{high} << 32 | low; }
    void set_word(std::uint64_t word) {
      high = static_cast<std::uint32_t>(word >> 32);
      low = static_cast<std::uint32_t>(word);
    }
  };
  // A page as it is going to be stored.
  struct encoded {
    kind is = kind::empty;
    std::uint64_t word = 0;
    const std::byte* bytes = nullptr;
    std::size_t length = 0;
  };
  static_assert(sizeof(entry) == 12);
  static constexpr std::size_t stripe_count = 1024;

  [[nodiscard]] spin_lock& stripe_of(slot_id slot) { return stripes_[slot % stripe_count]; }
  // Not checked: where an object lies, its owner knows, who keeps it there by the stripe; the zones stay where they
  // are.
  [[nodiscard]] std::byte* bytes_of(object_place place) const FAR_UNCHECKED_LOCKING { return zones_.bytes_of(place); }
  [[nodiscard]] static encoded encode(const std::byte* page, page_codec& with);
  [[nodiscard]] int write_part(slot_id slot, std::size_t offset, std::span<const std::byte> bytes, page_codec& with);
  [[nodiscard]] int put(slot_id slot, const encoded& page) FAR_REQUIRES(stripe_of(slot));
  [[nodiscard]] bool find_place(slot_id slot, const encoded& page, bool first_write, object_place* into);
  [[nodiscard]] bool load(const entry& from, std::byte* page, page_codec& with) const;
  [[nodiscard]] int read_part(slot_id slot, std::size_t offset, std::span<std::byte> into, page_codec& with);
  bool compact(bool when_full);
  void move(object_place from);
  void drop(entry* old) FAR_REQUIRES(lock_);
  void note_tending() FAR_REQUIRES(lock_);

  const std::uint64_t slots_;
  entry* const entries_;
  std::array<spin_lock, stripe_count> stripes_;
  mutable spin_lock lock_;
  zones zones_ FAR_GUARDED_BY(lock_);
  std::atomic<bool> wants_tending_{false};
};

template <typename IsClaimed>
void page_store::keep_in_child(slot_id end, IsClaimed is_claimed) {
  lock_.assert_held();  // the child has one thread
  std::uint64_t promised = 0;
  for (slot_id slot = 0; slot < end; ++slot) {
    if (!is_claimed(slot)) {
      drop(&entries_[slot]);
    } else if (entries_[slot].is == kind::empty) {
      ++promised;
    }
  }
  zones_.set_promised(promised);
}

}  // namespace far::backend
