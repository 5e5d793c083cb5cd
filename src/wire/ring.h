// A ring of fixed entries in memory that two processes share: one puts, the other takes.
//
// Each side trusts only what it has written itself: its own position is a private copy, the other side's is checked
// each time it is read, and an entry is copied out before anybody looks at it. An impossible position (further ahead
// than the ring is long) breaks the ring for good; the owner ends the connection.
//
// Waking: the side that is about to sleep announces it (doze), looks once more, and sleeps; the side that puts an entry
// looks for the announcement afterwards (publish). Both are sequentially consistent, so one of the two sees the other.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace far::wire {

// One value on a cache line of its own; two lines, because processors fetch them in pairs.
struct alignas(128) shared_word {
  std::atomic<std::uint32_t> value;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// The words of an entry, so that no byte of it can be read twice by accident.
using ring_entry = std::array<std::uint64_t, 8>;
struct alignas(64) shared_entry {
  std::array<std::atomic<std::uint64_t>, 8> words;
};
static_assert(sizeof(shared_entry) == sizeof(ring_entry));

// Where a ring lies in shared memory. Requires: `length` is a power of two.
struct ring_place {
  shared_word* put = nullptr;     // how many entries were ever put, modulo 2^32
  shared_word* taken = nullptr;   // how many were ever taken
  shared_word* dozing = nullptr;  // 1: the taking side sleeps, or is about to
  shared_entry* entries = nullptr;
  std::uint32_t length = 0;
};

// The putting side. One thread at a time.
class ring_producer {
 public:
  ring_producer() = default;
  explicit ring_producer(const ring_place& where) : where_(where) {}

  // How many entries can be put now. 0 also when the ring is broken.
  [[nodiscard]] std::uint32_t room() {
    if (broken_) return 0;
    const std::uint32_t taken = where_.taken->value.load(std::memory_order_acquire);
    const std::uint32_t waiting = put_ - taken;
    if (waiting > where_.length) {
      broken_ = true;
      return 0;
    }
    return where_.length - waiting;
  }

  // Requires: room() since the last put was more than the entries put since.
  void put(const ring_entry& added) {
    shared_entry& place = where_.entries[put_ & (where_.length - 1)];
    for (std::size_t i = 0; i < added.size(); ++i) place.words[i].store(added[i], std::memory_order_relaxed);
    ++put_;
  }

  // Makes the entries visible. Returns whether the other side sleeps and must be woken.
  [[nodiscard]] bool publish() {
    where_.put->value.store(put_, std::memory_order_seq_cst);
    if (where_.dozing->value.load(std::memory_order_seq_cst) == 0) return false;
    return where_.dozing->value.exchange(0, std::memory_order_relaxed) != 0;
  }

  [[nodiscard]] bool broken() const { return broken_; }

 private:
  ring_place where_;
  std::uint32_t put_ = 0;
  bool broken_ = false;
};

// The taking side. One thread at a time.
class ring_consumer {
 public:
  ring_consumer() = default;
  explicit ring_consumer(const ring_place& where) : where_(where) {}

  // Copies the next entry out. False: there is none, or the ring is broken.
  [[nodiscard]] bool take(ring_entry& into) {
    if (broken_) return false;
    if (taken_ == seen_ && !look()) return false;
    const shared_entry& place = where_.entries[taken_ & (where_.length - 1)];
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = place.words[i].load(std::memory_order_relaxed);
    ++taken_;
    return true;
  }

  // Gives the places of taken entries back.
  void release() { where_.taken->value.store(taken_, std::memory_order_release); }

  // Announces sleep. Returns whether there is nothing to take, so that sleeping is right.
  [[nodiscard]] bool doze() {
    where_.dozing->value.store(1, std::memory_order_seq_cst);
    return !broken_ && taken_ == seen_ && where_.put->value.load(std::memory_order_seq_cst) == taken_;
  }
  void wake() { where_.dozing->value.store(0, std::memory_order_relaxed); }

  [[nodiscard]] bool broken() const { return broken_; }

 private:
  bool look() {
    seen_ = where_.put->value.load(std::memory_order_acquire);
    if (seen_ - taken_ <= where_.length) return seen_ != taken_;
    broken_ = true;
    return false;
  }

  ring_place where_;
  std::uint32_t taken_ = 0;
  std::uint32_t seen_ = 0;  // the other side's position when it was last read
  bool broken_ = false;
};

}  // namespace far::wire
