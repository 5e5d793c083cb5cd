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
// A slot of the first tier that is moving belongs to its mover: even if the slot is freed meanwhile, the mover gives it
// back. Transfers are counted (pins), and a place changes or is freed only while there are none. So no transfer ever
// uses a free place, and none has to be repeated because its place has changed. A slot may be freed during a read that
// nobody waits for any more; it is dead until the read has ended. Only finish_move drops bytes in the first tier, and
// the mover calls it when the next tier has acknowledged them.
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

  // Around a transfer: the place does not change in between. Nothing: the slot is no longer allocated.
  [[nodiscard]] std::optional<tier_place> pin(slot_id slot, operation op);
  // If the slot is dead and this was its last pin, returns its place, for the caller to free both.
  [[nodiscard]] std::optional<tier_place> unpin(slot_id slot);

  // Where it is just now. Nothing: it is no longer allocated.
  [[nodiscard]] std::optional<tier_place> look(slot_id slot) const;

  // The slot is freed. Nothing: it is being moved or read, and freed at the end of that.
  [[nodiscard]] std::optional<tier_place> release(slot_id slot);

  // For the mover, one slot at a time by one thread. Returns its place in the first tier if it may move: it was
  // written, and has not been used since the last call for it. A used slot counts as cold the next time.
  [[nodiscard]] std::optional<slot_id> begin_move(slot_id slot);
  enum class moved : std::uint8_t {
    done,    // the bytes are in the next tier; their place in the first is to be freed
    stays,   // in the first tier; its place in the next one is to be freed
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
