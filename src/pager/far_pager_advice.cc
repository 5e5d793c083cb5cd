// What becomes of madvise and mlock in the far heap. docs/run.md has the table.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "engine/block_guards.h"
#include "pager/far_pager.h"
#include "pager/memory_results.h"
#include "platform/advice.h"

namespace far::pager {
namespace {

constexpr unsigned lock_on_fault = 1;  // MLOCK_ONFAULT

int kernel_advises(std::byte* address, std::size_t bytes, int advice) {
  return syscall(SYS_madvise, address, bytes, advice) == 0 ? 0 : errno;
}

bool accessible(const mapping_traits& traits) {
  return !traits.fenced && traits.protection != PROT_NONE;
}

}  // namespace

// ---- madvise ----

result<void> far_pager::discard(std::byte* address, std::size_t bytes) {
  return outcome("madvise", inside([&] {
                   return for_each_part(pages_in(address, bytes), at_hole::go_on,
                                        [this](const address_map::part& part) { return discard_part(part); });
                 }));
}

result<void> far_pager::advise(std::byte* address, std::size_t bytes, int advice) {
  const page_range range = pages_in(address, bytes);
  if (advice == MADV_COLD || advice == MADV_PAGEOUT) return outcome("madvise", push_out(range, advice));
  const bool populates = advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE;
  const at_hole what = populates ? at_hole::stop : at_hole::go_on;
  return outcome("madvise", inside([&] {
                   return for_each_part(range, what, [this, advice](const address_map::part& part) {
                     return part.traits.foreign ? tell_kernel(part, advice) : advise_part(part, advice);
                   });
                 }));
}

// Outside the gate: a fork does not wait until pages are written.
int far_pager::push_out(page_range range, int advice) {
  const address_map::parts parts = inside([&] { return look(range); });
  page_id next = range.first;
  bool holes = false;
  for (const address_map::part& part : parts) {
    holes |= part.range.first != next;
    next = part.range.end();
    if (part.traits.locked) return EINVAL;
    const int failure = part.traits.foreign ? tell_kernel(part, advice) : 0;
    if (failure != 0) return failure;
    if (!part.traits.foreign && !part.traits.reserved) {
      evict(address_of(part.range.first), part.range.count << page_shift);
    }
  }
  return holes || next != range.end() ? ENOMEM : 0;
}

int far_pager::advise_part(const address_map::part& part, int advice) {
  switch (advice) {
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
      // The pager sees by itself what is read in order. Pages that the kernel has merged could not be moved.
      return 0;
    case MADV_WILLNEED: prefetch(address_of(part.range.first), part.range.count << page_shift); return 0;
    case MADV_DONTNEED:
    case MADV_FREE: return discard_part(part);
    case MADV_DONTNEED_LOCKED: {
      const bool locked = part.traits.locked;
      int failure = locked ? unlock_part(part) : 0;
      address_map::part unlocked = part;
      unlocked.traits.locked = false;
      if (failure == 0) failure = discard_part(unlocked);
      return failure == 0 && locked ? lock_part(unlocked, lock_on_fault) : failure;
    }
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_WIPEONFORK:
    case MADV_KEEPONFORK: return note_of_child(part.range, advice);
    case MADV_POPULATE_READ: return populate_part(part, false);
    case MADV_POPULATE_WRITE: return populate_part(part, true);
    case MADV_GUARD_INSTALL: return fence(part, true);
    case MADV_GUARD_REMOVE: return fence(part, false);
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_COLLAPSE:
    case MADV_DONTDUMP:
    case MADV_DODUMP: return tell_kernel(part, advice);
    default: return EINVAL;  // MADV_REMOVE of private memory; tests of the machine; what we do not know
  }
}

int far_pager::discard_part(const address_map::part& part) {
  if (part.traits.foreign) return tell_kernel(part, MADV_DONTNEED);
  if (part.traits.locked) return EINVAL;
  if (part.traits.reserved) return 0;
  engine_->ranges().discard(part.range);
  if (part.traits.protection == PROT_NONE) give_up_if_empty(part.range);
  return 0;
}

int far_pager::tell_kernel(const address_map::part& part, int advice) {
  const int failure = kernel_advises(address_of(part.range.first), part.range.count << page_shift, advice);
  if (failure == 0 && (advice == MADV_NOHUGEPAGE || advice == MADV_DONTDUMP) && !part.traits.foreign) {
    addresses_.change(part.range, [](mapping_traits& traits) { traits.kernel_marked = true; });
  }
  return failure;
}

// The kernel is not told: its child would have no mapping there, and a page that is away has nothing to wipe.
int far_pager::note_of_child(page_range range, int advice) {
  addresses_.change(range, [advice](mapping_traits& traits) {
    if (advice == MADV_DONTFORK || advice == MADV_DOFORK) traits.absent_in_child = advice == MADV_DONTFORK;
    if (advice == MADV_WIPEONFORK || advice == MADV_KEEPONFORK) traits.empty_in_child = advice == MADV_WIPEONFORK;
  });
  return 0;
}

// In the child, before the program goes on in it. Locks are not inherited.
void far_pager::settle_parts_in_child() {
  addresses_.change({0, static_cast<std::size_t>(heap_.pages())},
                    [](mapping_traits& traits) { traits.locked = false; });
  for (const address_map::part& part : addresses_.find_all(
           [](const mapping_traits& each) { return !each.foreign && (each.absent_in_child || each.empty_in_child); })) {
    const int failure = part.traits.absent_in_child ? do_unmap(part.range) : discard_part(part);
    FAR_CHECK(failure == 0, "memory of ours can be emptied in a child");
    // What is wiped has no guards either. If the kernel has no room for another mapping, they stay.
    if (!part.traits.absent_in_child) static_cast<void>(fence(part, false));
  }
}

// The kernel's own marks of such pages would be lost with the pages, so they are made inaccessible instead.
int far_pager::fence(const address_map::part& part, bool install) {
  if (install && part.traits.locked) return EINVAL;
  if (part.traits.fenced == install) return 0;
  if (install) {
    const int failure = part.traits.reserved ? 0
                                             : set_kernel_protection(address_of(part.range.first),
                                                                     part.range.count << page_shift, PROT_NONE);
    if (failure != 0) return failure;
    addresses_.change(part.range, [](mapping_traits& traits) { traits.fenced = true; });
    if (!part.traits.reserved) engine_->ranges().discard(part.range);
    give_up_if_empty(part.range);
    return 0;
  }
  addresses_.change(part.range, [](mapping_traits& traits) { traits.fenced = false; });
  const int failure = protect_part(part, part.traits.protection);
  if (failure != 0) addresses_.change(part.range, [](mapping_traits& traits) { traits.fenced = true; });
  return failure;
}

int far_pager::populate_part(const address_map::part& part, bool write) {
  if ((part.traits.protection & (write ? PROT_WRITE : PROT_READ)) == 0) return EINVAL;
  if (part.traits.fenced) return EFAULT;
  engine::for_each_block(part.range, [this, write](engine::block_id, page_range piece) {
    if (engine_->ranges().populate_open(piece)) return;
    fetch(address_of(piece.first), piece.count << page_shift, write);
  });
  return 0;
}

// ---- mlock ----

result<void> far_pager::lock(std::byte* address, std::size_t bytes, unsigned flags) {
  // What nobody can touch is locked as well, but the kernel then fills nothing from there on, and says so.
  bool unfilled = false;
  const auto lock_each = [&](const address_map::part& part) {
    unfilled |= !part.traits.foreign && !accessible(part.traits) && (flags & lock_on_fault) == 0;
    return lock_part(part, unfilled ? flags | lock_on_fault : flags);
  };
  const int failure = inside([&] { return for_each_part(pages_in(address, bytes), at_hole::stop, lock_each); });
  return outcome("mlock", failure == 0 && unfilled ? ENOMEM : failure);
}

result<void> far_pager::unlock(std::byte* address, std::size_t bytes) {
  return outcome("munlock", inside([&] {
                   return for_each_part(pages_in(address, bytes), at_hole::go_on,
                                        [this](const address_map::part& part) { return unlock_part(part); });
                 }));
}

void far_pager::unlock_all() {
  inside([this] {
    for (const address_map::part& part : addresses_.find_all([](const mapping_traits& each) { return each.locked; })) {
      static_cast<void>(unlock_part(part));  // there is nothing that munlock could refuse
    }
    return 0;
  });
}

// The kernel fills what it locks. It finds all of it here, also where it could not wait for a miss.
int far_pager::lock_part(const address_map::part& part, unsigned flags) {
  std::byte* const address = address_of(part.range.first);
  const std::size_t bytes = part.range.count << page_shift;
  const bool fill = !part.traits.foreign && accessible(part.traits) && (flags & lock_on_fault) == 0;
  if (!part.traits.foreign && !accessible(part.traits)) flags |= lock_on_fault;
  if (fill) pin(address, bytes);
  const int failure = syscall(SYS_mlock2, address, bytes, flags) == 0 ? 0 : errno;
  if (fill) unpin(address, bytes);
  // What the kernel could not fill is locked all the same; what the limit refuses is not. The map must know.
  const bool locked = failure == 0 || (failure == ENOMEM && syscall(SYS_mlock2, address, bytes, lock_on_fault) == 0);
  if (locked && !part.traits.foreign) {
    addresses_.change(part.range, [](mapping_traits& traits) { traits.locked = true; });
  }
  return failure;
}

int far_pager::unlock_part(const address_map::part& part) {
  const int failure =
      syscall(SYS_munlock, address_of(part.range.first), part.range.count << page_shift) == 0 ? 0 : errno;
  if (failure == 0) addresses_.change(part.range, [](mapping_traits& traits) { traits.locked = false; });
  return failure;
}

}  // namespace far::pager
