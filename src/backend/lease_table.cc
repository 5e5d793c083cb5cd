#include "backend/lease_table.h"

#include <algorithm>

#include "base/check.h"

namespace far::backend {

using wire::block_slots;

lease_table::lease_table(std::uint64_t capacity_slots, std::uint64_t numbers)
    : capacity_slots_(capacity_slots), numbers_(numbers), slots_(numbers * block_slots) {
  FAR_CHECK(capacity_slots > 0 && capacity_slots <= numbers * block_slots, "every slot has a block");
}

void lease_table::limit_capacity(std::uint64_t slots) {
  FAR_CHECK(slots > 0 && slots <= capacity_slots_ && slots_.limit() == 0, "the capacity is known before it is used");
  capacity_slots_ = slots;
}

std::uint64_t lease_table::usable_slots(std::uint64_t block) const {
  const std::uint64_t first = block * block_slots;
  return first < capacity_slots_ ? std::min(block_slots, capacity_slots_ - first) : block_slots;
}

void lease_table::grant(std::uint64_t block) {
  const slot_id begin = block * block_slots;
  const std::uint64_t count = usable_slots(block);
  if (begin >= slots_.limit()) return extend(begin, begin + count);
  unowned_ -= count;
  slots_.free(begin, count);
}

void lease_table::skip(std::uint64_t block) {
  const slot_id begin = block * block_slots;
  if (begin < slots_.limit()) return;  // it was ours before, and is nobody's already
  extend(begin, begin + usable_slots(block));
  FAR_CHECK(take_out(block), "slots that were never granted are nobody's");
}

// Makes the slots from `begin` on known to the allocator.
void lease_table::extend(slot_id begin, slot_id end) {
  const std::uint64_t limit = slots_.limit();
  if (begin > limit) {
    // The unused end of the block where the capacity ends.
    slots_.extend(begin);
    FAR_CHECK(slots_.claim(limit, begin - limit), "slots beyond the capacity are nobody's");
    unowned_ += begin - limit;
  }
  slots_.extend(end);
}

bool lease_table::take_out(std::uint64_t block) {
  const std::uint64_t count = usable_slots(block);
  if (!slots_.claim(block * block_slots, count)) return false;
  unowned_ += count;
  return true;
}

void lease_table::write_off(std::uint64_t block) {
  claim_free(block * block_slots, usable_slots(block));
}

// Allocates every free slot of the range for good.
void lease_table::claim_free(slot_id first, std::uint64_t count) {
  if (slots_.claim(first, count)) {
    unowned_ += count;
    return;
  }
  if (slots_.all_allocated(first, count)) return;
  claim_free(first, count / 2);
  claim_free(first + count / 2, count - count / 2);
}

std::uint64_t lease_table::used() const {
  // Two looks, between which either may have changed.
  const std::uint64_t allocated = slots_.used();
  return allocated - std::min(allocated, unowned_slots());
}

void lease_table::validate() const {
  slots_.validate();
  FAR_CHECK(unowned_slots() <= slots_.used(), "what is nobody's is handed out to nobody");
  FAR_CHECK(slots_.limit() <= numbers_ * block_slots, "every slot has a block");
}

}  // namespace far::backend
