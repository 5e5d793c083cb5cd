#include "engine/slot_reads.h"

#include "base/check.h"
#include "base/lock_guard.h"

namespace far::engine {

slot_reads::entry* slot_reads::find(const bucket& in, backend::slot_id slot) {
  entry* read = in.first.load(std::memory_order_relaxed);
  while (read != nullptr && read->slot != slot) read = read->next;
  return read;
}

void slot_reads::begin(entry& one, backend::slot_id slot) {
  bucket& holder = bucket_of(slot);
  one.slot = slot;
  one.owns = false;
  const lock_guard guard(holder.lock);
  one.next = holder.first.load(std::memory_order_relaxed);
  // In the one total order: before the caller looks at the page again. The other side is in leave_to_readers().
  holder.first.store(&one, std::memory_order_seq_cst);
}

bool slot_reads::end(entry& one) {
  bucket& holder = bucket_of(one.slot);
  const lock_guard guard(holder.lock);
  entry* const first = holder.first.load(std::memory_order_relaxed);
  if (first == &one) {
    holder.first.store(one.next, std::memory_order_seq_cst);
  } else {
    entry* before = first;
    while (before != nullptr && before->next != &one) before = before->next;
    FAR_CHECK(before != nullptr, "a read ends once");
    before->next = one.next;
  }
  if (!one.owns) return false;
  entry* const other = find(holder, one.slot);
  if (other != nullptr) other->owns = true;
  return other == nullptr;
}

bool slot_reads::leave_to_readers(backend::slot_id slot) {
  bucket& holder = bucket_of(slot);
  // The common case, without the lock. The caller changed the page's word before, in the one total order.
  if (holder.first.load(std::memory_order_seq_cst) == nullptr) return false;
  const lock_guard guard(holder.lock);
  entry* const reading = find(holder, slot);
  if (reading != nullptr) reading->owns = true;
  return reading != nullptr;
}

std::size_t slot_reads::owned_slots() const {
  std::size_t count = 0;
  for (const bucket& list : buckets_) {
    const lock_guard guard(list.lock);
    for (const entry* one = list.first.load(std::memory_order_relaxed); one != nullptr; one = one->next) {
      count += one->owns ? 1 : 0;
    }
  }
  return count;
}

void slot_reads::restart_in_child() {
  for (bucket& list : buckets_) {
    list.first.store(nullptr, std::memory_order_relaxed);
    list.lock.open_in_child();
  }
}

}  // namespace far::engine
