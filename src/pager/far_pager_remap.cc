// mremap in the far heap. Bytes that are away move by name: nothing is fetched.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "pager/far_pager.h"
#include "pager/memory_results.h"

namespace far::pager {
namespace {

constexpr std::uint64_t huge_page_pages = (2 * mib) >> page_shift;

bool alike(mapping_traits one, const mapping_traits& other) {
  one.reserved = other.reserved;
  return one == other;
}

}  // namespace

result<std::byte*> far_pager::remap(std::byte* address, std::size_t old_bytes, std::size_t new_bytes,
                                    const remapping& how) {
  if (new_bytes > heap_.bytes()) return no_room(new_bytes);
  if (!holds_whole(address, old_bytes)) return failed("mremap", EFAULT);
  if (how.target != nullptr && !holds_whole(how.target, new_bytes)) return failed("mremap", EINVAL);
  page_id moved = 0;
  const int failure = inside([&] { return do_remap(pages_in(address, old_bytes), pages_for(new_bytes), how, &moved); });
  return failure == 0 ? result<std::byte*>(address_of(moved)) : failed("mremap", failure);
}

int far_pager::do_remap(page_range range, std::uint64_t new_count, const remapping& how, page_id* moved) {
  const address_map::parts parts = look(range);
  // As the kernel: one mapping, or neighbours that are one to it.
  page_id next = range.first;
  for (const address_map::part& part : parts) {
    if (part.range.first != next || part.traits.foreign || !alike(part.traits, parts.front().traits)) return EFAULT;
    next = part.range.end();
  }
  if (parts.empty() || next != range.end() || new_count == 0) return EFAULT;
  if (new_count < range.count && !how.keep_source) {
    const page_range tail{range.first + new_count, static_cast<std::size_t>(range.count - new_count)};
    const int failure = do_unmap(tail);
    if (failure != 0) return failure;
    range.count = new_count;
  }
  *moved = range.first;
  const bool stays = how.target == nullptr && !how.keep_source;
  if (stays && new_count == range.count) return 0;
  if (stays && grow_in_place(range, new_count - range.count, parts.back().traits) == 0) return 0;
  return how.may_move ? move_parts(range, new_count, how, moved) : ENOMEM;
}

int far_pager::grow_in_place(page_range range, std::uint64_t more, const mapping_traits& traits) {
  const page_range added{range.end(), static_cast<std::size_t>(more)};
  if (added.end() > pages() || !addresses_.take_at(added, traits)) return ENOMEM;
  const int failure = traits.reserved ? 0 : open_part(added, traits.fenced ? PROT_NONE : traits.protection, false);
  if (failure != 0) {
    for (const address_map::part& part : addresses_.remove(added)) addresses_.put_back(part.range);
    return failure;
  }
  if (traits.locked) static_cast<void>(lock_part({added, traits}, 0));
  return 0;
}

// Requires: all of `range` is ours, and alike.
int far_pager::move_parts(page_range range, std::uint64_t new_count, const remapping& how, page_id* moved) {
  const address_map::parts parts = look(range);
  mapping_traits traits = parts.front().traits;
  const bool was_locked = traits.locked;
  traits.locked = traits.kernel_marked = false;
  traits.reserved = std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.traits.reserved; });
  for (const address_map::part& part : parts) {
    const int failure = part.traits.reserved && !traits.reserved ? open_reserved(part.range, PROT_NONE) : 0;
    if (failure != 0) return failure;
  }
  page_range target{0, static_cast<std::size_t>(new_count)};
  const int refused = take_target(how, &target);
  if (refused != 0) return refused;
  if (!traits.reserved) {
    const int failure = open_part(target, traits.fenced ? PROT_NONE : traits.protection, true);
    if (failure != 0) return addresses_.put_back(target), failure;
    // Pages that are locked here could not move to where they are not.
    if (was_locked) static_cast<void>(syscall(SYS_munlock, address_of(range.first), range.count << page_shift));
    if (!engine_->move(range, target.first)) {
      addresses_.use(target, traits);
      static_cast<void>(do_unmap(target));
      return ENOMEM;
    }
  }
  addresses_.use(target, traits);
  *moved = target.first;
  if (how.keep_source) {
    addresses_.change(range, [](mapping_traits& kept) { kept.locked = false; });
  } else {
    static_cast<void>(do_unmap(range));  // it is ours: nothing there can refuse
  }
  // The bytes are there now, and nothing may fail any more: what the limits refuse to lock stays unlocked.
  if (was_locked) static_cast<void>(lock_part({target, traits}, 0));
  return 0;
}

// Takes the place that the program wants, or some place, out of everybody's sight.
int far_pager::take_target(const remapping& how, page_range* target) {
  if (how.target != nullptr) {
    target->first = page_at(how.target);
    return take_over(*target, false);
  }
  const std::uint64_t alignment = target->count >= huge_page_pages ? huge_page_pages : 1;
  const std::optional<page_id> first = addresses_.take(target->count, alignment, mapping_traits());
  if (!first) return ENOMEM;
  target->first = *first;
  static_cast<void>(addresses_.remove(*target));
  return 0;
}

}  // namespace far::pager
