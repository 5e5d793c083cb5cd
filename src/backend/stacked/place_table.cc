#include "backend/stacked/place_table.h"

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

// A word: the slot in its tier, flags, and in the highest bits how many transfers are under way.
constexpr std::uint64_t slot_mask = (std::uint64_t{1} << place_table::slot_bits) - 1;
constexpr std::uint64_t flag(unsigned number) {
  return std::uint64_t{1} << (place_table::slot_bits + number);
}
constexpr std::uint64_t in_next = flag(0);
constexpr std::uint64_t used = flag(1);
constexpr std::uint64_t written = flag(2);
constexpr std::uint64_t touched = flag(3);  // used since the mover last looked
constexpr std::uint64_t moving = flag(4);
constexpr std::uint64_t stale = flag(5);  // written since the mover read it
constexpr std::uint64_t dead = flag(6);
constexpr std::uint64_t one_pin = flag(7);
constexpr std::uint64_t pins = ~(one_pin - 1);

tier_place place_of(std::uint64_t word) {
  return {(word & in_next) != 0 ? 1u : 0u, word & slot_mask};
}

}  // namespace

place_table::place_table(std::uint64_t slots)
    : slots_(slots),
      words_(reinterpret_cast<std::atomic<std::uint64_t>*>(platform::map_local(slots * sizeof(std::uint64_t)))) {}

place_table::~place_table() {
  platform::unmap_local(reinterpret_cast<std::byte*>(words_), slots_ * sizeof(std::uint64_t));
}

void place_table::set_fresh(slot_id slot, tier_place where) {
  FAR_CHECK(where.slot <= slot_mask, "a slot that a stack of tiers cannot number");
  words_[slot].store(where.slot | used | touched | (where.tier == 0 ? 0 : in_next), std::memory_order_release);
}

std::optional<tier_place> place_table::pin(slot_id slot, operation op) {
  std::uint64_t word = words_[slot].load(std::memory_order_acquire);
  std::uint64_t next = 0;
  do {
    if ((word & (used | dead)) != used) return std::nullopt;
    FAR_CHECK((word & pins) != pins, "more transfers of one slot than can be counted");
    next = (word + one_pin) | touched;
    if (op == operation::write) next |= written | ((word & moving) != 0 ? stale : 0);
  } while (!words_[slot].compare_exchange_weak(word, next, std::memory_order_acq_rel));
  return place_of(next);
}

std::optional<tier_place> place_table::unpin(slot_id slot) {
  std::uint64_t word = words_[slot].load(std::memory_order_acquire);
  std::uint64_t next = 0;
  do {
    FAR_CHECK((word & pins) != 0, "a transfer ends once");
    next = word - one_pin;
    if ((next & dead) != 0 && (next & (moving | pins)) == 0) next = 0;
  } while (!words_[slot].compare_exchange_weak(word, next, std::memory_order_acq_rel));
  if (next != 0) return std::nullopt;
  return place_of(word);
}

std::optional<tier_place> place_table::look(slot_id slot) const {
  const std::uint64_t word = words_[slot].load(std::memory_order_acquire);
  if ((word & (used | dead)) != used) return std::nullopt;
  return place_of(word);
}

std::optional<tier_place> place_table::release(slot_id slot) {
  std::uint64_t word = words_[slot].load(std::memory_order_acquire);
  std::uint64_t next = 0;
  do {
    FAR_CHECK((word & (used | dead)) == used, "a slot is freed once");
    next = (word & (moving | pins)) != 0 ? word | dead : 0;
  } while (!words_[slot].compare_exchange_weak(word, next, std::memory_order_acq_rel));
  if (next != 0) return std::nullopt;
  return place_of(word);
}

std::optional<slot_id> place_table::begin_move(slot_id slot) {
  std::uint64_t word = words_[slot].load(std::memory_order_acquire);
  const bool may_move = (word & (used | written)) == (used | written) && (word & (in_next | moving | dead | pins)) == 0;
  if (!may_move) return std::nullopt;
  const bool is_cold = (word & touched) == 0;
  const std::uint64_t next = is_cold ? word | moving : word & ~touched;
  // If it has just been used, it is not cold.
  if (!words_[slot].compare_exchange_strong(word, next, std::memory_order_acq_rel) || !is_cold) return std::nullopt;
  return word & slot_mask;
}

place_table::moved place_table::finish_move(slot_id slot, slot_id place) {
  FAR_CHECK(place <= slot_mask, "a slot that a stack of tiers cannot number");
  std::uint64_t word = words_[slot].load(std::memory_order_acquire);
  while (true) {
    FAR_CHECK((word & moving) != 0, "what is moving stays so until its mover ends it");
    if ((word & (dead | stale)) != 0) return abandon_move(slot);
    if ((word & pins) != 0) return moved::is_busy;
    const std::uint64_t next = place | used | written | in_next;
    if (words_[slot].compare_exchange_weak(word, next, std::memory_order_acq_rel)) return moved::done;
  }
}

place_table::moved place_table::abandon_move(slot_id slot) {
  std::uint64_t word = words_[slot].load(std::memory_order_acquire);
  std::uint64_t next = 0;
  do {
    const bool dies = (word & dead) != 0 && (word & pins) == 0;
    next = dies ? 0 : (word | touched) & ~(moving | stale);
  } while (!words_[slot].compare_exchange_weak(word, next, std::memory_order_acq_rel));
  return next == 0 ? moved::died : moved::stays;
}

void place_table::begin_again_in_child(slot_id end) {
  for (slot_id slot = 0; slot < end; ++slot) {
    const std::uint64_t word = words_[slot].load(std::memory_order_relaxed);
    if (word != 0) words_[slot].store((word & ~(pins | moving | stale)) | dead, std::memory_order_relaxed);
  }
}

tier_place place_table::claim_in_child(slot_id slot) {
  const std::uint64_t word = words_[slot].load(std::memory_order_relaxed) & ~dead;
  FAR_CHECK((word & used) != 0, "a slot that is claimed is in use");
  words_[slot].store(word, std::memory_order_relaxed);
  return place_of(word);
}

void place_table::end_claims_in_child(slot_id end) {
  for (slot_id slot = 0; slot < end; ++slot) {
    if ((words_[slot].load(std::memory_order_relaxed) & dead) != 0) words_[slot].store(0, std::memory_order_relaxed);
  }
}

}  // namespace far::backend
