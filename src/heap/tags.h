// The numbers of a runtime's tags (far/tag.h). They are few, so a number that was given back goes to another tag.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "base/lock_guard.h"
#include "base/spin_lock.h"
#include "heap/page_table.h"

namespace far::heap {

// A tag: its number, below most_tags, and above that how many tags had the number before. 0: the tag of everything that
// has no other.
using tag_key = std::uint32_t;

[[nodiscard]] constexpr unsigned number_of(tag_key tag) {
  return tag % most_tags;
}

// How the pages of a tag leave (far::replacement).
struct tag_replacement {
  std::uint16_t most_heat = 1;
  bool by_recency = false;
  std::uint8_t priority = 1;
  bool operator==(const tag_replacement&) const = default;
};

//     unused ──take_unused──> prepared ──begin──> in use ──end──> ending ──ended──> given back
//                                 ^                                                     │
//                                 └───────────────────take_given_back───────────────────┘
//
// Pages and open segments may carry the number of a tag that was given back. Before another tag can begin, whoever
// prepares it takes the number off them; see object_heap::add_tag.
class tag_table {
 public:
  tag_table() { of_[0].state.store(in_use, std::memory_order_relaxed); }
  tag_table(const tag_table&) = delete;
  tag_table& operator=(const tag_table&) = delete;

  // A number for a tag that the caller prepares, or nothing.
  [[nodiscard]] std::optional<unsigned> take_unused();
  [[nodiscard]] std::optional<unsigned> take_given_back();
  // It is prepared.
  [[nodiscard]] tag_key begin(unsigned number, tag_replacement how);
  // It could not be prepared.
  void cancel(unsigned number);

  // The tag is given back. Returns false when it was before.
  [[nodiscard]] bool end(tag_key tag);
  // Nothing of it is in use any more but its number.
  void ended(unsigned number);

  // The tag of new objects for which a program names `tag`: the default one if it was given back. Requires: the caller
  // is in a scope until the objects have their places, unless they have pages of their own.
  [[nodiscard]] tag_key for_objects_of(tag_key tag) const {
    return of_[number_of(tag)].state.load(std::memory_order_seq_cst) == (tag | in_use) ? tag : 0;
  }
  // Likewise for copies of objects in pages with that number.
  [[nodiscard]] tag_key for_copies(unsigned number) const {
    const std::uint32_t state = of_[number].state.load(std::memory_order_seq_cst);
    return (state & in_use) != 0 ? state & ~in_use : 0;
  }

  [[nodiscard]] tag_replacement replacement_of(unsigned number) const {
    return of_[number].how.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t in_use = std::uint32_t{1} << 31;

  enum class phase : std::uint8_t { unused, prepared, in_use, ending, given_back };
  struct tag_state {
    std::atomic<std::uint32_t> state{0};  // the last tag with the number, and whether it is in use
    std::atomic<tag_replacement> how{tag_replacement{}};
  };

  [[nodiscard]] std::optional<unsigned> take(phase from);

  std::array<tag_state, most_tags> of_;
  spin_lock lock_;
  std::array<phase, most_tags> phases_ FAR_GUARDED_BY(lock_) = {phase::in_use};
};

}  // namespace far::heap
