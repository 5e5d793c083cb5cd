#include "pager/memory_moves.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/backoff.h"
#include "base/check.h"
#include "pager/memory_results.h"

namespace far::pager {
namespace {

constexpr std::uint64_t huge_page_pages = (2 * mib) >> page_shift;

// Another call has taken a part of the target out. Less than any errno value.
constexpr int target_is_busy = -1;

// As in the kernel: one mapping, or neighbours that are one to it.
int check_source(page_range range, const address_map::parts& source) {
  page_id next = range.first;
  for (const address_map::part& part : source) {
    if (part.range.first != next || part.traits.foreign || !part.traits.is_one_mapping_with(source.front().traits))
      return EFAULT;
    next = part.range.end();
  }
  if (source.empty() || next != range.end()) return EFAULT;
  return source.front().traits.sealed ? EPERM : 0;
}

}  // namespace

result<std::byte*> memory_moves::remap(std::byte* address, std::size_t old_bytes, std::size_t new_bytes,
                                       const remapping& how) {
  if (new_bytes > heap_.bytes()) return no_room(new_bytes);
  if (!parts_.holds_whole(address, old_bytes)) return failed("mremap", EFAULT);
  if (how.target != nullptr && !parts_.holds_whole(how.target, new_bytes)) return failed("mremap", EINVAL);
  arrival there;
  const int failure =
      parts_.inside([&] { return remap(parts_.pages_in(address, old_bytes), pages_for(new_bytes), how, &there); });
  if (failure != 0) return failed("mremap", failure);
  // As in the kernel, memory that cannot be filled is locked all the same.
  if (there.to_fill.count > 0) {
    static_cast<void>(locks_.fill(parts_.address_of(there.to_fill), mapped_parts::bytes_of(there.to_fill)));
  }
  return parts_.address_of(there.first);
}

// As in mremap(2), a range that becomes shorter is cut first, even when the move that follows fails.
//
// The source is out of the map while the call looks at it and moves it: no other thread locks or protects it meanwhile.
// With the source in its hands the call does not wait for its target: two threads that move in opposite directions
// would wait for each other.
int memory_moves::remap(page_range range, std::uint64_t new_count, const remapping& how, arrival* there) {
  if (new_count == 0) return EFAULT;
  if (new_count < range.count && !how.keep_source) {
    int failure = check_source(range, parts_.look(range));
    const page_range tail{range.first + new_count, static_cast<std::size_t>(range.count - new_count)};
    if (failure == 0) failure = parts_.unmap(tail);
    if (failure != 0) return failure;
    range.count = new_count;
  }
  backoff waiting;
  while (true) {
    address_map::parts source = parts_.take_out(range);
    int failure = check_source(range, source);
    if (failure == 0) failure = remap_taken(range, source, new_count, how, there);
    for (const address_map::part& kept : source) parts_.addresses().use(kept.range, kept.traits);
    if (failure != target_is_busy) return failure;
    waiting.pause();
  }
}

// `source`: the parts that are out, and that the caller puts back; none of them when they have moved.
int memory_moves::remap_taken(page_range range, address_map::parts& source, std::uint64_t new_count,
                              const remapping& how, arrival* there) {
  there->first = range.first;
  const bool stays = how.target == nullptr && !how.keep_source;
  if (stays && new_count == range.count) return 0;
  const std::size_t more_bytes = (new_count - range.count) << page_shift;
  if (source.front().traits.locked && !may_lock_more(parts_.address_of(range.first), more_bytes)) return EAGAIN;
  if (stays && grow_in_place(range, new_count - range.count, source.back().traits, there) == 0) return 0;
  return how.may_move ? move_parts(range, source, new_count, how, there) : ENOMEM;
}

int memory_moves::grow_in_place(page_range range, std::uint64_t more, const mapping_traits& grown, arrival* there) {
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
  const bool is_locked = grown.locked && locks_.lock_part({added, traits}, memory_locks::on_fault) == 0;
  if (is_locked && !grown.locked_on_fault) there->to_fill = added;
  return 0;
}

// Requires: the parts of `source` are all of `range`, out of the map, ours, and alike.
int memory_moves::move_parts(page_range range, address_map::parts& source, std::uint64_t new_count,
                             const remapping& how, arrival* there) {
  const mapping_traits before = source.front().traits;
  mapping_traits traits = before;
  traits.locked = traits.locked_on_fault = traits.fenced = false;
  traits.kernel_marked = traits.is_marked();
  traits.reserved = traits.protection == PROT_NONE &&
                    std::all_of(source.begin(), source.end(), [](const auto& part) { return part.traits.reserved; });
  if (!traits.reserved && !ranges_.can_guard()) return ENOMEM;  // before anything at the target is given up
  page_range target{0, static_cast<std::size_t>(new_count)};
  const int refused = take_target(how, traits.protection, &target);
  if (refused != 0) return refused;
  const int failure = open_target(range, source, target, traits);
  if (failure != 0) {
    parts_.addresses().put_back(target);
    return failure;
  }
  for (const address_map::part& part : source) {
    if (!part.traits.reserved) ranges_.move(part.range, target.first + (part.range.first - range.first));
  }
  // There is room for it: may_lock_more().
  if (before.locked) {
    address_map::part locked{target, traits};
    if (locks_.lock_taken(locked) == 0 && !before.locked_on_fault) there->to_fill = target;
    traits = locked.traits;
  }
  use_target(range, source, target, traits);
  there->first = target.first;
  for (address_map::part& part : source) {
    if (how.keep_source) {
      leave_empty(part);
    } else {
      static_cast<void>(parts_.close(part));  // it is ours: nothing there can refuse
    }
  }
  source.clear();
  return 0;
}

// The locks and guards have moved, too. If the kernel has no room for another mapping, a guard stays.
void memory_moves::leave_empty(address_map::part& part) {
  part.traits.locked = part.traits.locked_on_fault = false;
  static_cast<void>(advice_.fence_taken(part, false));
  parts_.addresses().use(part.range, part.traits);
  parts_.give_up_if_empty(part.range);
}

// The parts of the source have arrived, and new memory behind them. What nobody could touch is a reservation again.
void memory_moves::use_target(page_range range, const address_map::parts& source, page_range target,
                              const mapping_traits& traits) {
  page_id next = target.first;
  for (const address_map::part& part : source) {
    const page_range arrived{target.first + (part.range.first - range.first), part.range.count};
    mapping_traits kept = traits;
    kept.fenced = part.traits.fenced;
    kept.reserved = traits.reserved || (part.traits.reserved && !traits.locked && ranges_.release_if_empty(arrived));
    parts_.addresses().use(arrived, kept);
    next = arrived.end();
  }
  if (next < target.end()) parts_.addresses().use({next, static_cast<std::size_t>(target.end() - next)}, traits);
}

// Opens the target. All that the kernel may refuse comes before the first byte moves: if it does, everything is as
// before, and the target is empty.
int memory_moves::open_target(page_range range, const address_map::parts& source, page_range target,
                              const mapping_traits& traits) {
  for (const address_map::part& part : source) {
    if (!part.traits.reserved && !ranges_.guard_source(part.range)) return ENOMEM;
  }
  int failure = traits.reserved ? 0 : parts_.open(target, traits, true);
  if (failure != 0) return failure;
  failure = advice_.repeat_marks(target, traits);
  for (const address_map::part& part : source) {
    if (failure != 0 || !part.traits.fenced) continue;
    std::byte* const arrived = parts_.address_of(target.first + (part.range.first - range.first));
    failure = set_kernel_protection(arrived, mapped_parts::bytes_of(part.range), PROT_NONE);
  }
  if (failure == 0 && source.front().traits.locked) failure = unlock_source(range);
  if (failure != 0) empty_again(target, traits);
  return failure;
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
    const std::optional<address_map::parts> taken = parts_.addresses().take_over(*target);
    if (!taken) return target_is_busy;
    const auto is_sealed = [](const address_map::part& part) { return part.traits.sealed; };
    if (std::any_of(taken->begin(), taken->end(), is_sealed)) return parts_.give_back(*target, *taken, 0), EPERM;
    return parts_.empty(*target, *taken, false, protection);
  }
  const std::uint64_t alignment = target->count >= huge_page_pages ? huge_page_pages : 1;
  const std::optional<page_id> first = parts_.addresses().take_out(target->count, alignment);
  if (!first) return ENOMEM;
  target->first = *first;
  return 0;
}

}  // namespace far::pager
