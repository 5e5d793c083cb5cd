// mremap(2): moves within the far heap, into it, and out of it.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/units.h"
#include "pager/memory_results.h"
#include "platform/advice.h"
#include "preload/far_ranges.h"
#include "preload/in_runtime.h"
#include "preload/kernel_calls.h"
#include "preload/memory_calls.h"
#include "preload/resource_limits.h"

namespace far::preload {
namespace {

using overlap = pager::pager::overlap;
using origin = pager::pager::origin;

// A call within the far heap, out of it, or into it. Lengths are in whole pages.
struct move_call {
  std::byte* address;
  std::size_t old_bytes;
  std::size_t new_bytes;
  int flags;
  std::byte* wanted;
  bool from_heap;
  bool into_heap;
};

// This thread may have no right to the key.
bool is_shut(const pager::pager::mapping& source) {
  return (source.protection & PROT_READ) == 0 || source.key > 0;
}

// Returns 0 or an errno value; then all that has been opened to read it is so still.
int copy_part(const pager::pager::mapping& part, std::byte* target, std::byte* from) {
  if (is_shut(part) && protect(from, part.bytes, PROT_READ, part.key > 0 ? 0 : -1) != 0) return errno;
  const bool is_writable = (part.protection & PROT_WRITE) != 0;
  if (!is_writable && kernel_mprotect(target, part.bytes, PROT_READ | PROT_WRITE) != 0) return errno;
  std::memcpy(target, from, part.bytes);
  return 0;
}

// Guards move with the pages, and what nobody has touched stays so. Returns as copy_part() does.
int copy_out(const pager::pager& far, std::byte* target, std::byte* from, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const auto look = [&] { return far.mapping_at(from + done, bytes - done); };
    const result<pager::pager::mapping> part = in_runtime(look);
    if (!part) return EFAULT;  // another thread has unmapped it
    if (part.value().guarded) {
      static_cast<void>(kernel_madvise(target + done, part.value().bytes, MADV_GUARD_INSTALL));
    } else if (!part.value().reserved) {
      if (const int failure = copy_part(part.value(), target + done, from + done)) return failure;
    }
    done += part.value().bytes;
  }
  return 0;
}

// Repeats for `target`, which was mapped just now, the advice that stays with a mapping; false if the kernel has no
// room to note it.
bool repeat_advice(void* target, std::size_t bytes, const pager::pager::mapping& as) {
  return (!as.absent_in_child || kernel_madvise(target, bytes, MADV_DONTFORK) == 0) &&
         (!as.empty_in_child || kernel_madvise(target, bytes, MADV_WIPEONFORK) == 0) &&
         (!as.undumped || kernel_madvise(target, bytes, MADV_DONTDUMP) == 0) &&
         (as.huge_pages == 0 || kernel_madvise(target, bytes, as.huge_pages) == 0);
}

// The program may have freed the key since: then the memory has none.
void protect_source(std::byte* source, std::size_t bytes, int protection, int key) {
  if (key > 0 && protect(source, bytes, protection, key) == 0) return;
  static_cast<void>(protect(source, bytes, protection, -1));
}

void protect_target(void* target, std::size_t bytes, int protection, int key) {
  if (key > 0 && kernel_pkey_mprotect(target, bytes, protection, key) == 0) return;
  static_cast<void>(kernel_mprotect(target, bytes, protection));
}

// Moves a range out of the far heap: its bytes are copied, and local from then on. Requires: the new range is not
// shorter.
void* remap_out(pager::pager& far, const move_call& asked) {
  std::byte* const address = asked.address;
  const std::size_t old_bytes = asked.old_bytes;
  const std::size_t new_bytes = asked.new_bytes;
  const bool is_one = in_runtime([&] { return far.piece_at(address, old_bytes).bytes == old_bytes; });
  const result<pager::pager::mapping> known = in_runtime([&] { return far.mapping_at(address, old_bytes); });
  if (!known || !is_one) return fail_to_map(EFAULT);
  const int protection = known.value().protection;
  const int key = known.value().key;
  const bool locked = known.value().locked;
  if (locked && !pager::may_lock_more(address, new_bytes - old_bytes)) return fail_to_map(EAGAIN);
  // What nobody can write to costs no room until it is written to; so it is in the kernel.
  const int uncharged = (protection & PROT_WRITE) == 0 ? MAP_NORESERVE : 0;
  const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | uncharged;
  void* const target = kernel_mmap(asked.wanted, new_bytes, protection, kind, -1, 0);
  if (target == MAP_FAILED) return MAP_FAILED;
  if (!repeat_advice(target, new_bytes, known.value())) {
    kernel_munmap(target, new_bytes);
    return fail_to_map(ENOMEM);
  }
  if (const int failure = copy_out(far, bytes_at(target), address, old_bytes)) {
    kernel_munmap(target, new_bytes);
    if (is_shut(known.value())) protect_source(address, old_bytes, protection, key);
    return fail_to_map(failure);
  }
  if (locked) static_cast<void>(unlock(address, old_bytes));
  if ((protection & PROT_WRITE) == 0 || key > 0) protect_target(target, new_bytes, protection, key);
  if (locked) static_cast<void>(kernel_mlock2(target, new_bytes, known.value().lock_flags));
  if ((asked.flags & MREMAP_DONTUNMAP) == 0) return unmap(address, old_bytes) == 0 ? target : MAP_FAILED;
  static_cast<void>(advise(address, old_bytes, MADV_DONTNEED));
  static_cast<void>(advise(address, old_bytes, MADV_GUARD_REMOVE));  // an error if there are none to remove
  if (is_shut(known.value())) protect_source(address, old_bytes, protection, key);
  return target;
}

// The kernel moves its own memory. We note when it moves into the far heap, or out of it.
void* remap_foreign(pager::pager& far, const move_call& asked) {
  void* moved = MAP_FAILED;
  const auto move = [&]() -> int {
    moved = kernel_mremap(asked.address, asked.old_bytes, asked.new_bytes, asked.flags, asked.wanted);
    return moved != MAP_FAILED ? 0 : errno;
  };
  if (asked.into_heap) {
    const auto* const moving = &move;
    const result<void> handed_over = in_runtime([&] {
      return far.hand_over(asked.wanted, asked.new_bytes, overlap::replace, [moving] { return (*moving)(); });
    });
    if (done(handed_over) != 0) return MAP_FAILED;
  } else if (const int failure = move()) {
    return fail_to_map(failure);
  }
  const bool left = moved != asked.address && asked.old_bytes > 0 && (asked.flags & MREMAP_DONTUNMAP) == 0;
  if (left && asked.from_heap) {
    static_cast<void>(in_runtime([&] { return far.take_back(asked.address, asked.old_bytes); }));
  }
  return moved;
}

// The kernel refuses first of all if nothing is mapped at the first page, or it is sealed, even if nothing would
// change.
bool may_move_from(const pager::pager& far, void* address) {
  if (lies(far, address, page_bytes) == whereabouts::outside) {
    return kernel_mremap(address, page_bytes, page_bytes, 0, nullptr) != MAP_FAILED;
  }
  const bool sealed = in_runtime([&] { return far.is_sealed(bytes_at(address), page_bytes); });
  if (sealed) errno = EPERM;
  return !sealed;
}

// A call that only cuts off an end is munmap of that end, whatever mappings lie before it and in it, because the kernel
// looks only at the first one.
void* cut_off(const pager::pager& far, void* address, std::size_t old_bytes, std::size_t new_bytes) {
  const bool native = lies(far, address, page_bytes) == whereabouts::outside;
  if (!native && !in_runtime([&] { return far.origin_of(bytes_at(address), page_bytes); })) return fail_to_map(EFAULT);
  if (old_bytes == new_bytes) return address;
  return unmap(bytes_at(address) + new_bytes, old_bytes - new_bytes) == 0 ? address : MAP_FAILED;
}

// The error that the kernel gives for the arguments before it looks at any mapping; 0 if there is none.
int wrong_arguments(void* address, std::size_t old_bytes, std::size_t new_bytes, int flags, void* wanted) {
  const bool fixed = (flags & MREMAP_FIXED) != 0;
  const bool may_move = (flags & MREMAP_MAYMOVE) != 0;
  const bool keeps = (flags & MREMAP_DONTUNMAP) != 0;
  if ((flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) return EINVAL;
  if ((fixed || keeps) && !may_move) return EINVAL;
  std::size_t old_whole = 0;
  std::size_t new_whole = 0;
  if (!sensible(address, old_bytes, &old_whole) || !sensible(address, new_bytes, &new_whole)) return EINVAL;
  if (new_whole == 0 || (keeps && old_whole != new_whole)) return EINVAL;
  if (!fixed) return 0;
  if (!sensible(wanted, new_bytes, &new_whole)) return EINVAL;
  const bool apart =
      number_of(wanted) + new_whole <= number_of(address) || number_of(address) + old_whole <= number_of(wanted);
  return apart ? 0 : EINVAL;
}

// There are three cases: foreign pages, a move out of the far heap, and a move within it. Each moves the bytes in its
// own way.
void* move_one(pager::pager& far, const move_call& asked) {
  origin kind = origin::foreign;
  move_call left = asked;
  if (asked.from_heap) {
    // The part that the call cuts off may contain holes, and anything else.
    const std::size_t looked_at = std::max(std::min(asked.old_bytes, asked.new_bytes), page_bytes);
    const result<origin> found = in_runtime([&] { return far.origin_of(asked.address, looked_at); });
    if (!found) return fail_to_map(EFAULT);
    kind = found.value();
    // A second mapping of the same pages, which only shared ones can have.
    if (kind == origin::far && asked.old_bytes == 0) return fail_to_map(EINVAL);
    // The kernel would unmap far memory, too, and we would not know of it.
    left.old_bytes = std::min(asked.old_bytes, asked.new_bytes);
    const std::size_t cut_bytes = asked.old_bytes - left.old_bytes;
    if (cut_bytes > 0 && unmap(asked.address + left.old_bytes, cut_bytes) != 0) return MAP_FAILED;
  }
  if (kind == origin::foreign) return remap_foreign(far, left);
  const bool fixed = (asked.flags & MREMAP_FIXED) != 0;
  if (fixed && !asked.into_heap) return remap_out(far, left);
  const pager::pager::remapping how{.may_move = (asked.flags & MREMAP_MAYMOVE) != 0,
                                    .keep_source = (asked.flags & MREMAP_DONTUNMAP) != 0,
                                    .target = fixed ? asked.wanted : nullptr};
  const result<std::byte*> moved =
      in_runtime([&] { return far.remap(asked.address, left.old_bytes, asked.new_bytes, how); });
  return moved ? moved.value() : fail_to_map(moved.error().code != 0 ? moved.error().code : ENOMEM);
}

// Since Linux 6.17 a move to another place takes all mappings of its range, with the holes between them. Only the
// kernel knows, so this tries it. An older one refuses by EFAULT; any other error, as for want of room, says nothing.
bool kernel_moves_several() {
  enum : int { unknown, one, several };
  static std::atomic<int> known{unknown};
  if (known.load() != unknown) return known.load() == several;
  const int saved_errno = errno;
  constexpr int reservation = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const place = kernel_mmap(nullptr, 4 * page_bytes, PROT_NONE, reservation, -1, 0);
  if (place == MAP_FAILED) return errno = saved_errno, false;
  const bool are_two = kernel_mprotect(place, page_bytes, PROT_READ) == 0;
  void* const target = bytes_at(place) + 2 * page_bytes;
  const bool moved = are_two && kernel_mremap(place, 2 * page_bytes, 2 * page_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                                              target) != MAP_FAILED;
  const bool refuses_two = are_two && !moved && errno == EFAULT;
  kernel_munmap(place, 4 * page_bytes);
  if (moved || refuses_two) known.store(moved ? several : one);
  errno = saved_errno;
  return moved;
}

// Moves what is mapped in a range of the far heap, one mapping after the other, as the kernel does. What was moved
// before one that fails stays moved.
void* move_each(pager::pager& far, const move_call& asked) {
  for (std::size_t done = 0; done < asked.old_bytes;) {
    std::byte* const at = asked.address + done;
    const pager::pager::piece piece = in_runtime([&] { return far.piece_at(at, asked.old_bytes - done); });
    if (!piece.owner && done == 0) return fail_to_map(EFAULT);
    move_call one = asked;
    one.address = at;
    one.old_bytes = one.new_bytes = piece.bytes;
    one.wanted = asked.wanted + done;
    if (piece.owner && move_one(far, one) == MAP_FAILED) return MAP_FAILED;
    done += piece.bytes;
  }
  return asked.wanted;
}

}  // namespace

void* remap(void* address, std::size_t old_bytes, std::size_t new_bytes, int flags, void* wanted) {
  const bool fixed = (flags & MREMAP_FIXED) != 0;
  pager::pager* const source = pager_of(address, std::max(old_bytes, page_bytes));
  pager::pager* const target = fixed ? pager_of(wanted, new_bytes) : nullptr;
  if (source == nullptr && target == nullptr) return kernel_mremap(address, old_bytes, new_bytes, flags, wanted);
  if (const int wrong = wrong_arguments(address, old_bytes, new_bytes, flags, wanted)) return fail_to_map(wrong);
  pager::pager& far = source != nullptr ? *source : *target;
  const std::size_t old_whole = round_up(old_bytes, page_bytes);
  const std::size_t new_whole = round_up(new_bytes, page_bytes);
  if (!may_move_from(far, address)) return MAP_FAILED;
  if (new_whole > old_whole && !has_addresses_for(new_whole - old_whole)) return MAP_FAILED;
  if (new_whole <= old_whole && (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) == 0) {
    return cut_off(far, address, old_whole, new_whole);
  }
  // No mapping of the program extends across a border of the far heap.
  if (lies(far, address, std::max(old_whole, page_bytes)) == whereabouts::across) return fail_to_map(EFAULT);
  if (target != nullptr && lies(far, wanted, new_whole) == whereabouts::across) return fail_to_map(EINVAL);
  const move_call asked{.address = bytes_at(address),
                        .old_bytes = old_whole,
                        .new_bytes = new_whole,
                        .flags = flags,
                        .wanted = bytes_at(wanted),
                        .from_heap = source != nullptr,
                        .into_heap = target != nullptr};
  const bool moves_only = fixed && old_whole == new_whole && source != nullptr;
  return moves_only && kernel_moves_several() ? move_each(far, asked) : move_one(far, asked);
}

}  // namespace far::preload
