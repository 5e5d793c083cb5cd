#include "pager/memory_moves.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/check.h"
#include "pager/memory_results.h"

namespace far::pager {
namespace {

constexpr std::uint64_t huge_page_pages = (2 * mib) >> page_shift;

}  // namespace

result<std::byte*> memory_moves::remap(std::byte* address, std::size_t old_bytes, std::size_t new_bytes,
                                       const remapping& how) {
  if (new_bytes > heap_.bytes()) return no_room(new_bytes);
  if (!parts_.holds_whole(address, old_bytes)) return failed("mremap", EFAULT);
  if (how.target != nullptr && !parts_.holds_whole(how.target, new_bytes)) return failed("mremap", EINVAL);
  page_id moved = 0;
  const int failure =
      parts_.inside([&] { return remap(parts_.pages_in(address, old_bytes), pages_for(new_bytes), how, &moved); });
  return failure == 0 ? result<std::byte*>(parts_.address_of(moved)) : failed("mremap", failure);
}

// As in mremap(2), a range that becomes shorter is cut first, even when the move that follows fails.
int memory_moves::remap(page_range range, std::uint64_t new_count, const remapping& how, page_id* moved) {
  const address_map::parts parts = parts_.look(range);
  // As in the kernel: one mapping, or neighbours that are one to it.
  page_id next = range.first;
  for (const address_map::part& part : parts) {
    if (part.range.first != next || part.traits.foreign || !part.traits.is_one_mapping_with(parts.front().traits))
      return EFAULT;
    next = part.range.end();
  }
  if (parts.empty() || next != range.end() || new_count == 0) return EFAULT;
  if (parts.front().traits.sealed) return EPERM;
  if (new_count < range.count && !how.keep_source) {
    const page_range tail{range.first + new_count, static_cast<std::size_t>(range.count - new_count)};
    const int failure = parts_.unmap(tail);
    if (failure != 0) return failure;
    range.count = new_count;
  }
  *moved = range.first;
  const bool stays = how.target == nullptr && !how.keep_source;
  if (stays && new_count == range.count) return 0;
  const std::size_t more_bytes = (new_count - range.count) << page_shift;
  if (parts.front().traits.locked && !may_lock_more(parts_.address_of(range.first), more_bytes)) return EAGAIN;
  if (stays && grow_in_place(range, new_count - range.count, parts.back().traits) == 0) return 0;
  return how.may_move ? move_parts(range, new_count, how, moved) : ENOMEM;
}

int memory_moves::grow_in_place(page_range range, std::uint64_t more, const mapping_traits& grown) {
  const page_range added{range.end(), static_cast<std::size_t>(more)};
  mapping_traits traits = grown;
  traits.fenced = traits.locked = traits.locked_on_fault = false;
  traits.reserved = traits.protection == PROT_NONE;
  traits.kernel_marked = traits.is_marked();
  if (added.end() > heap_.bytes() >> page_shift || !parts_.addresses().take_at(added, traits)) return ENOMEM;
  const int failure = parts_.open_or_put_back(added, traits, false);
  if (failure != 0) return failure;
  if (advice_.repeat_marks(added, traits) != 0) {
    static_cast<void>(parts_.unmap(added));  // it is ours: nothing there can refuse
    return ENOMEM;
  }
  if (grown.locked) static_cast<void>(locks_.lock_part({added, traits}, memory_locks::flags_of(grown)));
  return 0;
}

// Requires: all of `range` is ours, and alike.
int memory_moves::move_parts(page_range range, std::uint64_t new_count, const remapping& how, page_id* moved) {
  const address_map::parts parts = parts_.look(range);
  const mapping_traits before = parts.front().traits;
  mapping_traits traits = before;
  traits.locked = traits.locked_on_fault = traits.fenced = false;
  traits.kernel_marked = traits.is_marked();
  traits.reserved = traits.protection == PROT_NONE &&
                    std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.traits.reserved; });
  page_range target{0, static_cast<std::size_t>(new_count)};
  const int refused = take_target(how, traits.protection, &target);
  if (refused != 0) return refused;
  const int failure = traits.reserved ? advice_.repeat_marks(target, traits) : move_bytes(range, parts, target, traits);
  if (failure != 0) {
    if (traits.reserved) empty_again(target, traits);
    parts_.addresses().put_back(target);
    return failure;
  }
  use_target(range, parts, target, traits);
  *moved = target.first;
  if (how.keep_source) {
    // The locks and guards have moved, too. If the kernel has no room for another mapping, a guard stays.
    for (const address_map::part& part : parts_.look(range)) {
      if (part.traits.locked) static_cast<void>(locks_.unlock_part(part));
      static_cast<void>(advice_.fence(part, false));
    }
  } else {
    static_cast<void>(parts_.unmap(range));  // it is ours: nothing there can refuse
  }
  // There is room for it: may_lock_more().
  if (before.locked) static_cast<void>(locks_.lock_part({target, traits}, memory_locks::flags_of(before)));
  return 0;
}

// The parts of the source have arrived, and new memory behind them.
void memory_moves::use_target(page_range range, const address_map::parts& parts, page_range target,
                              const mapping_traits& traits) {
  page_id next = target.first;
  for (const address_map::part& part : parts) {
    const page_range arrived{target.first + (part.range.first - range.first), part.range.count};
    mapping_traits kept = traits;
    kept.fenced = part.traits.fenced;
    parts_.addresses().use(arrived, kept);
    next = arrived.end();
  }
  if (next < target.end()) parts_.addresses().use({next, static_cast<std::size_t>(target.end() - next)}, traits);
  for (const address_map::part& part : parts) {
    if (part.traits.reserved)
      parts_.give_up_if_empty({target.first + (part.range.first - range.first), part.range.count});
  }
}

// Opens the target, and moves the bytes of the parts there. All that the kernel may refuse comes before the first byte
// moves: if it does, everything is as before, and the target is empty.
int memory_moves::move_bytes(page_range range, const address_map::parts& parts, page_range target,
                             const mapping_traits& traits) {
  for (const address_map::part& part : parts) {
    if (!part.traits.reserved && !ranges_.guard_source(part.range)) return ENOMEM;
  }
  int failure = parts_.open(target, traits, true);
  if (failure != 0) return failure;
  failure = advice_.repeat_marks(target, traits);
  const auto place_of = [&](page_range part) { return target.first + (part.first - range.first); };
  for (const address_map::part& part : parts) {
    if (failure != 0 || !part.traits.fenced) continue;
    failure = set_kernel_protection(parts_.address_of(place_of(part.range)), part.range.count << page_shift, PROT_NONE);
  }
  if (failure == 0 && parts.front().traits.locked) failure = unlock_source(range);
  if (failure != 0) {
    empty_again(target, traits);
    return failure;
  }
  for (const address_map::part& part : parts) {
    if (!part.traits.reserved) ranges_.move(part.range, place_of(part.range));
  }
  return 0;
}

// With all that the kernel was told of the target so far.
void memory_moves::empty_again(page_range target, const mapping_traits& traits) {
  const int emptied = parts_.empty(address_map::part{target, traits});
  FAR_CHECK(emptied == 0, "far memory can always be emptied");
}

// Locked pages could not move to a place where they are not locked.
int memory_moves::unlock_source(page_range range) {
  std::byte* const address = parts_.address_of(range.first);
  const std::size_t bytes = range.count << page_shift;
  if (syscall(SYS_munlock, address, bytes) == 0) return 0;
  const int failure = errno;
  // The kernel has no room to split its last mapping, and may have come as far as that.
  static_cast<void>(syscall(SYS_mlock2, address, bytes, memory_locks::on_fault));
  return failure;
}

// Takes the place that the program wants, or any place, so that no other thread gets it.
int memory_moves::take_target(const remapping& how, int protection, page_range* target) {
  if (how.target != nullptr) {
    target->first = heap_.page_at(how.target);
    if (parts_.any_sealed(*target)) return EPERM;
    return parts_.empty(*target, parts_.take(*target), false, protection);
  }
  const std::uint64_t alignment = target->count >= huge_page_pages ? huge_page_pages : 1;
  const std::optional<page_id> first = parts_.addresses().take(target->count, alignment, mapping_traits());
  if (!first) return ENOMEM;
  target->first = *first;
  static_cast<void>(parts_.addresses().remove(*target));
  return 0;
}

}  // namespace far::pager
