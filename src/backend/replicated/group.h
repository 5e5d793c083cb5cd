// A group of 512 virtual slots, and where its copies are.
//
// Where the bytes are stored. A copy is an extent of 512 adjacent slots of a member and the set of slots whose bytes it
// misses. A copy is current for a slot that is not missing, and only such copies are read:
//
//     (none) ---- the layer allocates an extent ------------> missing: every slot
//     missing --- a write of the whole slot succeeded ------> current
//     missing --- repaired: copied from a current copy -----> current
//     current --- a write succeeded elsewhere, not here ----> missing
//     any ------- leaving: nothing new uses it; when nobody does any more, the extent is freed ----> (none)
//
// A slot that is not `owned` (allocated by the layer's user) holds nothing, and a copy that misses it misses nothing.
//
// Repair beside writes. Repair copies the bytes that one copy, the target, misses inside a window of slots, while the
// program may write there. It (1) opens the window: a write that begins now marks its slots touched, and its success on
// the target does not count; (2) waits until all writes that began before have ended: in_flight is counted by phase,
// and opening turns the phase; (3) reads from a current copy and writes to the target; (4) closes the window: slots
// that were not touched are current now. A slot that was touched stays missing and is repaired later. So a write and a
// repair of one slot that were in flight together never make the target current, whichever came last.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/replicated/refusals.h"
#include "backend/replicated/slot_set.h"
#include "base/spin_lock.h"

namespace far::backend {

class member;

inline constexpr std::size_t maximum_copies = 3;
// A replacement is complete before the copy that it replaces is given up.
inline constexpr std::size_t maximum_places = maximum_copies + 1;

struct copy {
  bool present = false;
  bool leaving = false;
  std::uint8_t member = 0;
  refusal_count refusals{};
  slot_id first = 0;  // of the member's slots
  slot_set missing;
};

struct repair_window {
  std::uint8_t target = 0;
  slot_set slots;
  slot_set touched;
};

// Bytes [begin, end) of a group. Requires: begin < end <= group_slots * page_bytes.
struct byte_range {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  [[nodiscard]] std::size_t first_slot() const { return begin / page_bytes; }
  [[nodiscard]] std::size_t end_slot() const { return (end + page_bytes - 1) / page_bytes; }
  [[nodiscard]] slot_set slots() const { return slot_set::range(first_slot(), end_slot() - first_slot()); }
  // The slots that lie in it as a whole.
  [[nodiscard]] slot_set whole_slots() const {
    const std::size_t first = (begin + page_bytes - 1) / page_bytes;
    const std::size_t last = end / page_bytes;
    return first < last ? slot_set::range(first, last - first) : slot_set();
  }
};

// A bit for each place in a group.
using place_mask = std::uint8_t;

struct started_read {
  // served: `place` has the first bytes, up to `end`. waits: only a suspect member has them. away: only a lost one has,
  // and may come back with them. gone: nobody has them.
  enum class outcome : std::uint8_t { served, waits, away, gone };
  outcome how = outcome::gone;
  std::uint8_t place = 0;
  std::uint8_t phase = 0;
  std::uint8_t member = 0;
  slot_id first = 0;  // of the extent
  std::uint32_t end = 0;
};

struct started_write {
  std::array<std::uint8_t, maximum_places> members{};
  std::array<slot_id, maximum_places> firsts{};
  place_mask places = 0;  // 0: nobody can take it now
  place_mask raced = 0;   // the target of a repair that is under way
  std::uint8_t phase = 0;
  bool waits = false;  // without places: there are enough of them when that repair is over
};

struct ended_write {
  bool is_safe = false;       // every slot is current on as many servers as were asked for
  bool leaves_stale = false;  // and missing somewhere
};

// How a reader chooses among copies.
struct read_choice {
  place_mask tried = 0;
  std::uint64_t avoid = 0;               // a bit for each member whose bytes were wrong
  bool any_state = false;                // in the child of a fork: nobody there learns that a member came back
  bool explore = false;                  // take the second best, to learn how fast it is now
  std::span<const std::uint64_t> costs;  // by member
};

// All zero bytes: a group that is not placed.
class group {
 public:
  // A read of these bytes begins; served: end() must follow.
  [[nodiscard]] started_read begin_read(std::span<const member* const> members, byte_range bytes,
                                        const read_choice& choice) FAR_REQUIRES(lock);

  // The same of a whole slot, from this member alone: served, or gone.
  [[nodiscard]] started_read begin_read_from(std::size_t member_index, std::span<const member* const> members,
                                             std::size_t slot, bool any_state) FAR_REQUIRES(lock);

  // Since when none of those that have the slot's bytes has answered: the last of them to go; 0: one answers, or it is
  // not known.
  [[nodiscard]] std::uint64_t away_since_ns(std::span<const member* const> members, std::size_t slot) const
      FAR_REQUIRES(lock);

  // A write of these bytes begins; it goes to all of `places`. Unless there are none, end_write() must follow. `least`:
  // on how many servers the bytes must be for it to succeed.
  [[nodiscard]] started_write begin_write(std::span<const member* const> members, byte_range bytes,
                                          std::size_t least = 1) FAR_REQUIRES(lock);

  // The write ended, and succeeded where the bit is set. A copy that did not get the bytes misses them from now on. A
  // success on a member that has forgotten its slots since is none.
  [[nodiscard]] ended_write end_write(std::span<const member* const> members, const started_write& write,
                                      byte_range bytes, place_mask succeeded, std::size_t least = 1) FAR_REQUIRES(lock);

  void end(std::uint8_t phase) FAR_REQUIRES(lock) { --in_flight_[phase]; }

  // Waits for transfers that began before the first call: `turned` starts as false and is kept between the calls.
  [[nodiscard]] bool drained(bool* turned) FAR_REQUIRES(lock);

  void open_window(repair_window* opened) FAR_REQUIRES(lock) { window_ = opened; }
  void close_window() FAR_REQUIRES(lock) { window_ = nullptr; }

  // These slots have a new owner that has written nothing yet, so no copy misses anything of them. But a repair that is
  // under way may still write there.
  void own(const slot_set& slots) FAR_REQUIRES(lock);

  // On how many servers these places are.
  [[nodiscard]] std::size_t servers_of(std::span<const member* const> members, place_mask places) const
      FAR_REQUIRES(lock);

  // Slots that are owned and missing in this place.
  [[nodiscard]] slot_set stale(std::size_t place) const FAR_REQUIRES(lock) { return copies[place].missing & owned; }

  spin_lock lock;
  bool placed = false;     // it has been given extents
  bool available = false;  // slots of it that are free may be allocated
  // That its members are chosen by, while it is placed. Any slot may lie in it.
  std::atomic<affinity> chosen_by{no_affinity};
  std::uint8_t holds FAR_GUARDED_BY(lock) =
      0;  // the repairer's transfers here, during which the group's extents must stay
  slot_set owned;
  std::array<copy, maximum_places> copies FAR_GUARDED_BY(lock);

 private:
  // The first of the places that is on the same server as this one.
  [[nodiscard]] std::size_t first_on_server(std::span<const member* const> members, place_mask places,
                                            std::size_t place) const FAR_REQUIRES(lock);

  std::uint8_t phase_ FAR_GUARDED_BY(lock) = 0;
  std::array<std::uint32_t, 2> in_flight_ FAR_GUARDED_BY(lock){};
  repair_window* window_ FAR_GUARDED_BY(lock) = nullptr;
};

}  // namespace far::backend
