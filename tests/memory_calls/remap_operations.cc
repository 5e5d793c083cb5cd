// mremap: grow, shrink, move, to a named place, and leaving the old place mapped.
#include <algorithm>

#include "world.h"

namespace memory_calls {
namespace {

// Where a part of a locked mapping moves and leaves its place mapped, the kernel unlocks all of that mapping, and how
// far it reaches is the kernel's secret.
void unlock_all_of(world& w, area& one) {
  for (std::size_t page = 0; page < one.pages; ++page) {
    if (one.records[page].state != page_state::owned) continue;
    static_cast<void>(main_munlock(w, one.main + page * page_bytes, page_bytes));
    kernel_call(SYS_munlock, one.twin + page * page_bytes, page_bytes);
  }
}

// The first pages of a range that one mapping may be made of: the kernel remaps no more than one at a time.
std::size_t alike(const range& pages) {
  const page_record& first = pages.records()[0];
  std::size_t count = 0;
  while (count < pages.count) {
    const page_record& record = pages.records()[count];
    if (record.state != page_state::owned || record.protection != first.protection || record.shared != first.shared ||
        record.special != first.special || record.dont_fork != first.dont_fork) {
      break;
    }
    ++count;
  }
  return count;
}

void copy_records(const range& from, std::size_t count, const range& to) {
  for (std::size_t page = 0; page < count; ++page) to.records()[page] = from.records()[page];
  for (std::size_t page = count; page < to.count; ++page) {
    to.records()[page] = from.records()[count - 1];
    to.records()[page].maybe_free = false;
  }
}

// Where it cannot be known what a failed call has done.
void start_afresh(world& w, const range& pages) {
  must_agree(w, "munmap", main_munmap(w, pages.main(), pages.bytes()),
             kernel_call(SYS_munmap, pages.twin(), pages.bytes()));
  mark_hole(w, pages);
  forget_if_unused(*pages.where);
}

void shrink(world& w, range pages) {
  const std::size_t kept = 1 + w.random.below(pages.count - 1);
  say(w, "%zu pages at %p to %zu", pages.count, static_cast<void*>(pages.main()), kept);
  const outcome main = main_mremap(w, pages.main(), pages.bytes(), kept * page_bytes, 0, nullptr);
  const outcome twin = kernel_call(SYS_mremap, pages.twin(), pages.bytes(), kept * page_bytes, 0, 0);
  must_agree(w, "mremap to less", main, twin);
  if (main.ok()) mark_hole(w, {pages.where, pages.first + kept, pages.count - kept});
}

// Moves a twin to a place of its own in two steps. With a named place newer kernels move several mappings at once,
// without one they refuse: the first step must be the call that the main copy makes.
outcome move_twin(world& w, std::byte* from, std::size_t old_bytes, std::size_t new_bytes, int flags, std::byte* to) {
  const outcome anywhere = kernel_call(SYS_mremap, from, old_bytes, new_bytes, flags, 0);
  if (!anywhere.ok()) return anywhere;
  const outcome there =
      kernel_call(SYS_mremap, anywhere.address(), new_bytes, new_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
  // Older kernels leave several mappings that need not grow as they are, and then refuse to move them.
  if (there.error == EFAULT && anywhere.address() == from && old_bytes == new_bytes) return there;
  if (!there.ok()) fail(w, "a twin cannot be moved: errno %d", there.error);
  return there;
}

// Anywhere. Twins go first: where the kernel refuses, because of several mappings, there is nothing to do.
void move_anywhere(world& w, range pages, std::size_t wanted) {
  area* const where = free_area(w);
  if (where == nullptr) return;
  say(w, "%zu pages at %p to %zu, anywhere", pages.count, static_cast<void*>(pages.main()), wanted);
  const outcome twin = move_twin(w, pages.twin(), pages.bytes(), wanted * page_bytes, MREMAP_MAYMOVE, where->twin);
  if (!twin.ok()) return;
  const outcome main = main_mremap(w, pages.main(), pages.bytes(), wanted * page_bytes, MREMAP_MAYMOVE, nullptr);
  if (main.error == EFAULT) {
    kernel_call(SYS_munmap, where->twin, wanted * page_bytes);
    start_afresh(w, pages);
    return;
  }
  must_agree(w, "mremap", main, twin);
  const bool plain = pages.where->plain;
  page_record* const old = pages.records();
  const range moved{where, 0, wanted};
  where->pages = wanted;
  copy_records(pages, pages.count, moved);
  for (std::size_t page = 0; page < pages.count; ++page) old[page].state = page_state::gone;
  begin_area(w, *where, main.address(), wanted);
  where->plain = plain;
  verify_range(w, moved);
  forget_if_unused(*pages.where);
}

// Without leave to move: whether there is room is not ours to say, but what is said must be true.
void grow_in_place(world& w, range pages) {
  const std::size_t wanted = pages.count + w.random.spread(64);
  say(w, "%zu pages at %p to %zu, in place", pages.count, static_cast<void*>(pages.main()), wanted);
  const outcome main = main_mremap(w, pages.main(), pages.bytes(), wanted * page_bytes, 0, nullptr);
  if (!main.ok()) {
    if (main.error != ENOMEM && main.error != EFAULT) fail(w, "mremap in place ends with errno %d", main.error);
    return;
  }
  area* const where = free_area(w);
  const bool over_own = pages.first + pages.count < pages.where->pages &&
                        pages.where->records[pages.first + pages.count].state == page_state::owned;
  if (over_own) fail(w, "mremap in place grew over memory in use");
  if (where == nullptr) {
    must_agree(w, "mremap back", main_mremap(w, pages.main(), wanted * page_bytes, pages.bytes(), 0, nullptr), {});
    return;
  }
  const outcome twin = kernel_call(SYS_mremap, pages.twin(), pages.bytes(), wanted * page_bytes,
                                   MREMAP_MAYMOVE | MREMAP_FIXED, where->twin);
  if (twin.error == EFAULT) {  // several mappings there, and one here: the kernel need not merge what it may
    must_agree(w, "mremap back", main_mremap(w, pages.main(), wanted * page_bytes, pages.bytes(), 0, nullptr), {});
    return;
  }
  must_agree(w, "mremap in place", main, twin);
  const bool plain = pages.where->plain;
  const range grown{where, 0, wanted};
  copy_records(pages, pages.count, grown);
  for (std::size_t page = 0; page < pages.count; ++page) pages.records()[page].state = page_state::gone;
  begin_area(w, *where, main.address(), wanted);
  where->plain = plain;
  verify_range(w, grown);
  forget_if_unused(*pages.where);
}

bool overlap(const range& one, const range& other) {
  return one.where == other.where && one.first < other.first + other.count && other.first < one.first + one.count;
}

void move_over(world& w, range pages) {
  range target;
  if (!pick_range(w, target) || !allowed(w, "remap-fixed")) return;
  if (any_hole(target) && !allowed(w, "refill")) return;
  target.count = std::min(target.count, pages.count * 2);
  const bool leave = allowed(w, "dontunmap") && w.random.one_in(3) && target.count >= pages.count;
  if (leave) target.count = pages.count;
  if ((target.where->plain != pages.where->plain || any_shared(pages) || pages.records()[0].special) &&
      !allowed(w, "foreign")) {
    return;
  }
  const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (leave ? MREMAP_DONTUNMAP : 0);
  say(w, "%zu pages at %p to %zu at %p, flags %d", pages.count, static_cast<void*>(pages.main()), target.count,
      static_cast<void*>(target.main()), flags);
  if (leave) unlock_all_of(w, *pages.where);
  const outcome twin = kernel_call(SYS_mremap, pages.twin(), pages.bytes(), target.bytes(), flags, target.twin());
  // Several mappings: the kernel does not say how much it had unmapped before it found out, so both ranges start
  // afresh.
  if (twin.error == EFAULT && !overlap(pages, target)) {
    start_afresh(w, pages);
    start_afresh(w, target);
    return;
  }
  const outcome main = main_mremap(w, pages.main(), pages.bytes(), target.bytes(), flags, target.main());
  must_agree(w, "mremap to a place", main, twin);
  if (!main.ok()) return;
  const std::size_t moved = std::min(pages.count, target.count);
  copy_records(pages, moved, target);
  if (leave) {
    for (std::size_t page = 0; page < pages.count; ++page) pages.records()[page].maybe_free = false;
    verify_range(w, pages);
  } else {
    mark_hole(w, pages);
  }
  verify_range(w, target);
  forget_if_unused(*pages.where);
}

void leave_and_move(world& w, range pages) {
  area* const where = free_area(w);
  if (where == nullptr || !allowed(w, "dontunmap")) return;
  if (mapped_bytes(w) + pages.bytes() > w.chosen->working_set_bytes) return;
  say(w, "%zu pages at %p, leaving the place mapped", pages.count, static_cast<void*>(pages.main()));
  unlock_all_of(w, *pages.where);
  const outcome twin =
      move_twin(w, pages.twin(), pages.bytes(), pages.bytes(), MREMAP_MAYMOVE | MREMAP_DONTUNMAP, where->twin);
  if (twin.error == EFAULT) return;
  const outcome main =
      main_mremap(w, pages.main(), pages.bytes(), pages.bytes(), MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
  if (main.error == EFAULT) {  // several mappings here, and one there: the kernel need not merge what it may
    kernel_call(SYS_munmap, where->twin, pages.bytes());
    start_afresh(w, pages);
    return;
  }
  must_agree(w, "mremap with MREMAP_DONTUNMAP", main, twin);
  if (!main.ok()) return;
  const range moved{where, 0, pages.count};
  copy_records(pages, pages.count, moved);
  begin_area(w, *where, main.address(), pages.count);
  where->plain = pages.where->plain;
  for (std::size_t page = 0; page < pages.count; ++page) pages.records()[page].maybe_free = false;
  verify_range(w, moved);
  verify_range(w, pages);
}

}  // namespace

void remap(world& w) {
  range pages;
  if (!pick_range(w, pages)) return;
  pages.count = alike(pages);
  if (pages.count == 0) return;
  switch (w.random.below(6)) {
    case 0:
      if (pages.count > 1) shrink(w, pages);
      return;
    case 1: grow_in_place(w, pages); return;
    case 2: move_over(w, pages); return;
    case 3: leave_and_move(w, pages); return;
    default: break;
  }
  // Shared anonymous memory has no bytes beyond its end to grow into.
  std::size_t wanted = w.random.one_in(2) ? pages.count : pages.count + w.random.spread(pages.count);
  if (w.random.one_in(4)) wanted = w.random.spread(pages.count);
  if (mapped_bytes(w) + wanted * page_bytes > w.chosen->working_set_bytes + pages.bytes()) wanted = pages.count;
  if (wanted > area_pages_limit || (wanted < pages.count && any_maybe_free(pages))) wanted = pages.count;
  if (wanted < pages.count) {
    pages.count = wanted;
  }
  move_anywhere(w, pages, wanted);
}

}  // namespace memory_calls
