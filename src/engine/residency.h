// Residency: where the newest bytes of each page of the far heap are. The data model of the engine.
//
//     Untouched --touch--> Fetching --zeros in place----------------> Resident
//     Remote ----miss----> Fetching --bytes in place----------------> Resident
//                                   --read failed for good----------> Lost
//                                   --prefetch failed---------------> Remote
//     Untouched --block closed, kernel had filled it----------------> Resident
//     Resident --victim--> Evicting --clean: dropped----------------> Remote (or Untouched when it was all zeros)
//                                   --dirty: lifted, written--------> Remote
//                                   --lifted, touched meanwhile-----> Fetching (a rescue: its second chance)
//                                   --could not be lifted, or pinned> Resident
//     any settled state --discard--> Untouched --handed over--------> Foreign --allocated again--> Untouched
//
// The thread that wins the transition into Fetching or Evicting owns the page until it leaves that state; others wait.
// A page of an open block (block.h) is Untouched here, whatever the kernel has filled. A Foreign page is none of ours:
// the program has mapped something else at its address (or had: the place may be free), and no operation on its block
// touches, counts, or guards it.
#pragma once

#include <atomic>
#include <cstdint>

#include "backend/backend.h"
#include "engine/reference_marks.h"
#include "platform/address_space.h"

namespace far::engine {

using platform::page_id;
using platform::page_range;

enum class state : std::uint8_t { untouched, resident, evicting, remote, fetching, lost, foreign };
inline constexpr unsigned state_count = 7;

[[nodiscard]] const char* name_of(state one);
[[nodiscard]] bool is_legal_transition(state from, state to);

// The word of one page. A value; residency holds the atomic copies.
//
//     bits  0-2   state
//     bit   3     dirty: the bytes may be nowhere else. A dirty page that has a slot is a suspect: it was mapped
//                 writable because a write may come, and its hash tells at eviction whether one came
//     bit   4     accessed: used since the policy last looked
//     bit   5     queued: the policy holds an entry for the page
//     bit   6     lifted: Evicting, and the bytes are in staging; then `place` is a staging index
//     bit   7     path selector: set = object path
//     bits  8-9   eviction priority: higher ones leave first, if the policy looks at it
//     bits 10-17  pin count
//     bits 18-23  epoch of the last eviction, modulo 64
//     bit  24     writes expected: the page was written to the last time it was here
//     bit  25     fetched: Resident since it came from the far tier as a page, not made here
//     bits 26-63  place + 1: backend slot, or staging index; 0 = none
class page_word {
 public:
  static constexpr std::uint64_t no_place = ~std::uint64_t{0};
  static constexpr unsigned epochs = 64;
  static constexpr unsigned eviction_priorities = 4;
  static constexpr unsigned maximum_pins = 255;

  page_word() = default;
  explicit page_word(std::uint64_t bits) : bits_(bits) {}

  [[nodiscard]] std::uint64_t bits() const { return bits_; }
  [[nodiscard]] state where() const { return static_cast<state>(get(0, 3)); }
  [[nodiscard]] bool dirty() const { return get(3, 1) != 0; }
  [[nodiscard]] bool accessed() const { return get(4, 1) != 0; }
  [[nodiscard]] bool queued() const { return get(5, 1) != 0; }
  [[nodiscard]] bool lifted() const { return get(6, 1) != 0; }
  [[nodiscard]] bool object_path() const { return get(7, 1) != 0; }
  [[nodiscard]] unsigned eviction_priority() const { return static_cast<unsigned>(get(8, 2)); }
  [[nodiscard]] unsigned pins() const { return static_cast<unsigned>(get(10, 8)); }
  [[nodiscard]] unsigned epoch() const { return static_cast<unsigned>(get(18, 6)); }
  [[nodiscard]] bool writes_expected() const { return get(24, 1) != 0; }
  [[nodiscard]] bool fetched() const { return get(25, 1) != 0; }
  [[nodiscard]] bool has_place() const { return get(26, 38) != 0; }
  [[nodiscard]] std::uint64_t place() const { return get(26, 38) - 1; }

  [[nodiscard]] page_word with_state(state value) const { return set(0, 3, static_cast<std::uint64_t>(value)); }
  [[nodiscard]] page_word with_dirty(bool value) const { return set(3, 1, value); }
  [[nodiscard]] page_word with_accessed(bool value) const { return set(4, 1, value); }
  [[nodiscard]] page_word with_queued(bool value) const { return set(5, 1, value); }
  [[nodiscard]] page_word with_lifted(bool value) const { return set(6, 1, value); }
  [[nodiscard]] page_word with_object_path(bool value) const { return set(7, 1, value); }
  [[nodiscard]] page_word with_eviction_priority(unsigned value) const { return set(8, 2, value); }
  [[nodiscard]] page_word with_pins(unsigned value) const { return set(10, 8, value); }
  [[nodiscard]] page_word with_epoch(unsigned value) const { return set(18, 6, value % epochs); }
  [[nodiscard]] page_word with_place(std::uint64_t value) const { return set(26, 38, value + 1); }
  [[nodiscard]] page_word with_fetched(bool value) const { return set(25, 1, value); }
  [[nodiscard]] page_word with_writes_expected(bool value) const { return set(24, 1, value); }

  bool operator==(const page_word&) const = default;

 private:
  [[nodiscard]] std::uint64_t get(unsigned shift, unsigned width) const {
    return (bits_ >> shift) & ((std::uint64_t{1} << width) - 1);
  }
  [[nodiscard]] page_word set(unsigned shift, unsigned width, std::uint64_t value) const {
    const std::uint64_t mask = ((std::uint64_t{1} << width) - 1) << shift;
    return page_word((bits_ & ~mask) | ((value << shift) & mask));
  }

  std::uint64_t bits_ = 0;
};

// Told when a page settles: it has left Fetching or Evicting, and threads that wait for it can go on.
class settling_listener {
 public:
  // Called by the thread that changed the page, perhaps with locks of the engine held, perhaps inside a fault handler:
  // must not wait, touch far memory, or call the engine.
  virtual void settled(page_id page) noexcept = 0;

 protected:
  ~settling_listener() = default;
};

// The words of all pages, and a byte a page for software guards: whether it is Resident. 9 bytes a page; with the 8 of
// its hash (page_checks) 0.42% of the far heap, and only of the part that was ever used.
class residency {
 public:
  static constexpr std::size_t bytes_a_page = sizeof(std::uint64_t) + 2;  // its word, its state, its mark of use
  // `first_number`: the number, in the whole address space, of the page that is 0 here, if there is to be a table of
  // states by address; 0: there need not be one.
  explicit residency(std::uint64_t pages, std::uint64_t first_number = 0);
  ~residency();
  residency(const residency&) = delete;
  residency& operator=(const residency&) = delete;

  [[nodiscard]] std::uint64_t pages() const { return pages_; }
  [[nodiscard]] page_word load(page_id page) const { return page_word(words_[page].load(std::memory_order_acquire)); }

  // The same in the one total order of all transitions: for threads that first publish something for the one that
  // changes the word to find, and then look.
  [[nodiscard]] page_word load_in_order(page_id page) const {
    return page_word(words_[page].load(std::memory_order_seq_cst));
  }

  // The only way a word changes. Replaces `expected` by `desired` if the word still is `expected`; otherwise loads the
  // word into `expected` and returns false. Stops the process when the transition is not a legal one.
  [[nodiscard]] bool transition(page_id page, page_word& expected, page_word desired);

  // For the owner of a page in Fetching or Evicting, whose word nobody but a pin or the policy's flag can change:
  // applies `change` (page_word -> page_word) until it succeeds, and returns the new word.
  template <typename Change>
  page_word update(page_id page, Change change) {
    page_word expected = load(page);
    page_word desired = change(expected);
    while (!transition(page, expected, desired)) desired = change(expected);
    return desired;
  }

  // One byte a page: `byte_of_resident` while the page is Resident, and something else in every other state. It is
  // `byte_of_resident` a moment before the word says Resident, when the page is in place already, and ceases to be a
  // moment after the word says Evicting: a thread that makes a page Evicting has changed its byte when transition()
  // returns.
  [[nodiscard]] const std::uint8_t* state_bytes() const { return state_bytes_; }
  static constexpr auto byte_of_resident = static_cast<std::uint8_t>(state::resident);

  // For guards that a compiler places (far/detail/compiled.h): the state bytes as a table by address, with an entry for
  // each number of a page up to `last_number`: 0 for pages that are not the far heap's. Null when there is none,
  // because it was not wanted, or the kernel gave no room for it.
  [[nodiscard]] const std::uint8_t* states_by_number() const { return table_; }
  static constexpr std::uint64_t last_number = (std::uint64_t{1} << (47 - page_shift)) - 1;

  // For compiled loops: a word that is 0 until a page has ceased to be Resident for the first time, and then grows with
  // each batch of pages that leave.
  [[nodiscard]] const std::uint64_t* has_evicted() const { return &has_evicted_; }
  void note_departures() { __atomic_fetch_add(&has_evicted_, 1, __ATOMIC_RELAXED); }

  // Marks that hints set. Public: policies and the hinted path use them.
  reference_marks uses;

  // At most one listener. Before anybody waits for a page; it outlives every transition that follows.
  void set_listener(settling_listener& listener) { listener_ = &listener; }

 private:
  std::uint64_t pages_;
  std::atomic<std::uint64_t>* words_;
  std::uint8_t* table_;  // of which state_bytes_ is a part; or null
  std::uint8_t* state_bytes_;
  settling_listener* listener_ = nullptr;
  std::uint64_t has_evicted_ = 0;
};

}  // namespace far::engine
