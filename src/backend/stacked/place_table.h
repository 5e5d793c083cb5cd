// Where the bytes of each slot of a stack of tiers are, in a word that changes atomically.
//
//     unused ── set_fresh ──▶ in a tier ── release ──▶ unused
//                               │    ▲
//                      begin_move    │ finish_move: in the next tier; or, where the slot was written to
//                               ▼    │ meanwhile (stale), or the move failed, still in the first
//                             moving, and still read in the first tier
//                               │
//                            release ──▶ dead ── finish_move ──▶ unused
//
// A slot of the first tier that is moving belongs to its mover: also when the slot is freed it is the mover that
// gives it back. Transfers are counted (pins), and a place is changed or freed only while there are none: so no
// transfer ever goes to a place that is free, and none is needed again when the place has changed. A slot that is freed
// although a read is under way, one that nobody waits for any more, is dead until that has ended. Bytes are dropped in
// the first tier only by finish_move, which the mover calls when the next one has acknowledged them.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "backend/backend.h"

namespace far::backend {

struct tier_place {
  unsigned tier = 0;  // 0: the first, 1: the next
  slot_id slot = 0;   // as that tier numbers it
};

class place_table {
 public:
  static constexpr unsigned slot_bits = 40;

  explicit place_table(std::uint64_t slots);
  ~place_table();
  place_table(const place_table&) = delete;
  place_table& operator=(const place_table&) = delete;

  void set_fresh(slot_id slot, tier_place where);

  // Around a transfer: the place does not change in between. Nothing: the slot is not allocated any more.
  [[nodiscard]] std::optional<tier_place> pin(slot_id slot, operation op);
  // Returns the place of a slot that is dead, and is to be freed now, as its place.
  [[nodiscard]] std::optional<tier_place> unpin(slot_id slot);

  // The slot is freed. Nothing: it is being moved or read, and freed at the end of that.
  [[nodiscard]] std::optional<tier_place> release(slot_id slot);

  // For the mover, one slot at a time by one thread. Its place in the first tier, if it may move: it was written, and
  // not used since it was last asked for. A used slot is taken for cold the next time.
  [[nodiscard]] std::optional<slot_id> begin_move(slot_id slot);
  enum class moved : std::uint8_t {
    done,    // the bytes are in the next tier; their place in the first is to be freed
    stays,   // in the first tier; what was taken for it in the next one is to be freed
    died,    // both are to be freed, and the slot
    is_busy  // a transfer is under way: again, later
  };
  [[nodiscard]] moved finish_move(slot_id slot, slot_id in_next);
  // The move has failed: stays, or died.
  [[nodiscard]] moved abandon_move(slot_id slot);

  // In the child of a fork: nothing is under way, and slots that are not claimed are unused.
  void begin_again_in_child(slot_id end);
  tier_place claim_in_child(slot_id slot);
  void end_claims_in_child(slot_id end);

 private:
  const std::uint64_t slots_;
  std::atomic<std::uint64_t>* const words_;
};

}  // namespace far::backend
