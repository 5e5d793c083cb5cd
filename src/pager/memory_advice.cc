#include "pager/memory_advice.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "pager/memory_results.h"
#include "platform/advice.h"
#include "platform/signal_shield.h"

namespace far::pager {
namespace {

int kernel_advises(std::byte* address, std::size_t bytes, int advice) {
  return syscall(SYS_madvise, address, bytes, advice) == 0 ? 0 : errno;
}

}  // namespace

result<void> memory_advice::discard(std::byte* address, std::size_t bytes) {
  return outcome("madvise", parts_.inside([&] {
    return parts_.for_each(parts_.pages_in(address, bytes), mapped_parts::at_hole::go_on,
                           [this](const address_map::part& part) { return discard_part(part); });
  }));
}

result<void> memory_advice::advise(std::byte* address, std::size_t bytes, int advice) {
  const page_range range = parts_.pages_in(address, bytes);
  if (advice == MADV_COLD || advice == MADV_PAGEOUT) return outcome("madvise", push_out(range, advice));
  if (advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE) {
    return outcome("madvise", parts_.for_each_block(range, [this, advice](const address_map::part& part) {
      return part.traits.foreign ? tell_kernel(part, advice) : populate_part(part, advice == MADV_POPULATE_WRITE);
    }));
  }
  return outcome("madvise", parts_.inside([&] {
    return parts_.for_each(range, mapped_parts::at_hole::go_on, [this, advice](const address_map::part& part) {
      return part.traits.foreign ? tell_kernel(part, advice) : advise_part(part, advice);
    });
  }));
}

void memory_advice::evict(page_range range) {
  const platform::signal_shield shield;
  eviction_.evict(range, engine::batch_pages, &host_);
}

// Outside the gate: a fork does not wait until pages are written.
int memory_advice::push_out(page_range range, int advice) {
  const address_map::parts parts = parts_.inside([&] { return parts_.look(range); });
  page_id next = range.first;
  bool holes = false;
  for (const address_map::part& part : parts) {
    holes |= part.range.first != next;
    next = part.range.end();
    if (part.traits.locked) return EINVAL;
    const int failure = part.traits.foreign ? tell_kernel(part, advice) : 0;
    if (failure != 0) return failure;
    if (!part.traits.foreign && !part.traits.reserved) {
      evict(part.range);
    }
  }
  return holes || next != range.end() ? ENOMEM : 0;
}

// Whether an advice takes bytes away, from the program or its children.
bool memory_advice::discards(int advice) {
  switch (advice) {
    case MADV_DONTNEED:
    case MADV_FREE:
    case MADV_DONTNEED_LOCKED:
    case MADV_REMOVE:
    case MADV_DONTFORK:
    case MADV_WIPEONFORK:
    case MADV_GUARD_INSTALL: return true;
    default: return false;
  }
}

// One case for each advice of madvise(2), also for those without an effect here: an advice that is new to us must fail.
int memory_advice::advise_part(const address_map::part& part, int advice) {
  if (part.traits.sealed && (part.traits.protection & PROT_WRITE) == 0 && discards(advice)) return EPERM;
  switch (advice) {
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
      // The pager sees by itself what is read in order. Pages that the kernel has merged could not be moved.
      return 0;
    case MADV_WILLNEED: accesses_.prefetch(parts_.address_of(part.range), parts_.bytes_of(part.range)); return 0;
    case MADV_DONTNEED:
    case MADV_FREE: return discard_part(part);
    case MADV_DONTNEED_LOCKED: {
      const bool locked = part.traits.locked;
      int failure = locked ? locks_.unlock_part(part) : 0;
      address_map::part unlocked = part;
      unlocked.traits.locked = false;
      if (failure == 0) failure = discard_part(unlocked);
      return failure == 0 && locked ? locks_.lock_part(unlocked, memory_locks::on_fault) : failure;
    }
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_WIPEONFORK:
    case MADV_KEEPONFORK: return note_of_child(part.range, advice);
    case MADV_GUARD_INSTALL: return fence(part, true);
    case MADV_GUARD_REMOVE: return fence(part, false);
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_DONTDUMP:
    case MADV_DODUMP: return mark(part, advice);
    case MADV_COLLAPSE: return tell_kernel(part, advice);
    default: return EINVAL;  // MADV_REMOVE of private memory; tests of the machine; unknown advice
  }
}

int memory_advice::discard_part(const address_map::part& part) {
  if (part.traits.foreign) return tell_kernel(part, MADV_DONTNEED);
  if (part.traits.locked) return EINVAL;
  if (part.traits.reserved) return 0;
  ranges_.discard(part.range);
  if (part.traits.protection == PROT_NONE) parts_.give_up_if_empty(part.range);
  return 0;
}

int memory_advice::tell_kernel(const address_map::part& part, int advice) const {
  return kernel_advises(parts_.address_of(part.range), parts_.bytes_of(part.range), advice);
}

// Advice that the kernel keeps with a mapping, so that its neighbours are other mappings. Of several mappings it may
// have marked some before it fails.
int memory_advice::mark(const address_map::part& part, int advice) {
  return parts_.alter(part.range, [&](address_map::part& one) {
    if (one.traits.foreign) return tell_kernel(one, advice);
    one.traits.kernel_marked |= advice == MADV_DONTDUMP || advice == MADV_NOHUGEPAGE;
    const int failure = tell_kernel(one, advice);
    if (failure != 0) return failure;
    const bool is_of_dumps = advice == MADV_DONTDUMP || advice == MADV_DODUMP;
    if (is_of_dumps) one.traits.undumped = advice == MADV_DONTDUMP;
    if (!is_of_dumps) one.traits.huge_pages = static_cast<std::int8_t>(advice);
    return 0;
  });
}

int memory_advice::repeat_marks(page_range range, const mapping_traits& traits) const {
  const address_map::part target{range, traits};
  const bool is_told = (!traits.undumped || tell_kernel(target, MADV_DONTDUMP) == 0) &&
                       (traits.huge_pages == 0 || tell_kernel(target, traits.huge_pages) == 0);
  return is_told ? 0 : ENOMEM;
}

// The kernel is not told: its child would have no mapping there, and a page that is away has nothing to wipe.
int memory_advice::note_of_child(page_range range, int advice) {
  return parts_.alter(range, [advice](address_map::part& one) {
    if (advice == MADV_DONTFORK || advice == MADV_DOFORK) one.traits.absent_in_child = advice == MADV_DONTFORK;
    if (advice == MADV_WIPEONFORK || advice == MADV_KEEPONFORK) one.traits.empty_in_child = advice == MADV_WIPEONFORK;
    return 0;
  });
}

// In the child, before the program goes on in it. Locks are not inherited.
void memory_advice::settle_in_child() {
  parts_.addresses().change(parts_.everything(),
                            [](mapping_traits& traits) { traits.locked = traits.locked_on_fault = false; });
  for (const address_map::part& part : parts_.addresses().find_all([](const mapping_traits& traits) {
         return !traits.foreign && (traits.absent_in_child || traits.empty_in_child);
       })) {
    const int failure = part.traits.absent_in_child ? parts_.unmap(part.range) : discard_part(part);
    FAR_CHECK(failure == 0, "memory of ours can be emptied in a child");
    // A part that is wiped has no guards either. If the kernel has no room for another mapping, they stay.
    if (!part.traits.absent_in_child) static_cast<void>(fence(part, false));
  }
}

// The kernel's own marks of such pages would be lost with the pages, so they are made inaccessible instead.
int memory_advice::fence(const address_map::part& part, bool install) {
  const int failure =
      parts_.alter(part.range, [this, install](address_map::part& one) { return fence_taken(one, install); });
  if (failure == 0) parts_.give_up_if_empty(part.range);
  return failure;
}

int memory_advice::fence_taken(address_map::part& one, bool install) {
  if (one.traits.foreign) return tell_kernel(one, install ? MADV_GUARD_INSTALL : MADV_GUARD_REMOVE);
  if (install && one.traits.locked) return EINVAL;
  if (one.traits.fenced == install) return 0;
  return install ? install_fence(one) : remove_fence(one);
}

int memory_advice::install_fence(address_map::part& one) {
  if (!one.traits.reserved) {
    const int failure = set_kernel_protection(parts_.address_of(one.range), parts_.bytes_of(one.range), PROT_NONE);
    if (failure != 0) return failure;
    ranges_.discard(one.range);
  }
  one.traits.fenced = true;
  return 0;
}

int memory_advice::remove_fence(address_map::part& one) {
  one.traits.fenced = false;
  // A key that was set meanwhile has only been noted.
  const int failure = parts_.protect_taken(one, one.traits.protection, one.traits.key);
  one.traits.fenced = failure != 0;
  return failure;
}

// Requires: within one block.
int memory_advice::populate_part(const address_map::part& part, bool write) {
  if ((part.traits.protection & (write ? PROT_WRITE : PROT_READ)) == 0) return EINVAL;
  if (part.traits.fenced) return EFAULT;
  int failure = 0;
  if (ranges_.populate_open(part.range, write, &failure)) return failure;
  // The kernel reports failed memory in this way.
  return accesses_.fetch(parts_.address_of(part.range), parts_.bytes_of(part.range), write) ? 0 : EHWPOISON;
}

}  // namespace far::pager
