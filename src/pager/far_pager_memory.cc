// The program's memory calls: mapping, unmapping, protecting. What is at an address is told by one map, address_map;
// that pages of a block are not ours, the engine knows from their words.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.h"
#include "pager/far_pager.h"
#include "pager/memory_results.h"

namespace far::pager {
namespace {

constexpr std::size_t huge_page_bytes = 2 * mib;

// Puts the inaccessible reservation (back) where something else was mapped, or the kernel was told something of it.
int reserve_again(std::byte* address, std::size_t bytes, int how) {
  constexpr int reservation = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  const long mapped = syscall(SYS_mmap, address, bytes, PROT_NONE, reservation | how, -1, 0L);
  return mapped != -1 ? 0 : errno;
}

mapping_traits traits_of(int protection, bool guarded) {
  mapping_traits traits(protection);
  traits.reserved = protection == PROT_NONE && !guarded;
  return traits;
}

}  // namespace

// ---- mmap ----

result<std::byte*> far_pager::map(std::size_t bytes, int protection, std::size_t alignment_bytes) {
  return map_somewhere(bytes, protection, alignment_bytes, false);
}

result<std::byte*> far_pager::map_guarded(std::size_t bytes, std::size_t alignment_bytes) {
  return map_somewhere(bytes, PROT_READ | PROT_WRITE, alignment_bytes, true);
}

result<std::byte*> far_pager::map_somewhere(std::size_t bytes, int protection, std::size_t alignment_bytes,
                                            bool guarded) {
  if (bytes == 0) return error{"a mapping of no bytes", EINVAL};
  if (bytes > heap_.bytes()) return no_room(bytes);
  const std::size_t natural = bytes >= huge_page_bytes ? huge_page_bytes : page_bytes;
  const std::uint64_t alignment_pages = std::max(alignment_bytes, natural) >> page_shift;
  page_id first = 0;
  const int failure =
      inside([&] { return take_somewhere(pages_for(bytes), alignment_pages, protection, guarded, &first); });
  if (failure == 0) return address_of(first);
  return failure == ERANGE ? no_room(bytes) : failed("mmap", failure);
}

// ERANGE: no addresses are left.
int far_pager::take_somewhere(std::uint64_t count, std::uint64_t alignment_pages, int protection, bool guarded,
                              page_id* first) {
  const mapping_traits traits = traits_of(protection, guarded);
  const std::optional<page_id> found = addresses_.take(count, alignment_pages, traits);
  if (!found) return ERANGE;
  *first = *found;
  const page_range range{*found, static_cast<std::size_t>(count)};
  const int failure = traits.reserved ? 0 : open_part(range, protection, guarded);
  if (failure != 0) {
    for (const address_map::part& part : addresses_.remove(range)) addresses_.put_back(part.range);
  }
  return failure;
}

// Gives addresses that were just taken to the engine and to the program.
int far_pager::open_part(page_range range, int protection, bool guarded) {
  const result<void> allocated = guarded ? engine_->ranges().allocate_guarded(range) : engine_->ranges().allocate(range);
  if (!allocated) return allocated.error().code != 0 ? allocated.error().code : ENOMEM;
  const int failure = set_kernel_protection(address_of(range.first), range.count << page_shift, protection);
  if (failure != 0) {
    engine_->ranges().release(range);
    return failure;
  }
  if (engine_->eviction().wants_background()) reclaimer_->wake();
  return 0;
}

result<void> far_pager::map_at(std::byte* address, std::size_t bytes, int protection, placement how) {
  if (!holds_whole(address, bytes)) return no_room(bytes);
  return outcome("mmap", inside([&] { return do_map_at(pages_in(address, bytes), protection, how); }));
}

int far_pager::do_map_at(page_range range, int protection, placement how) {
  const mapping_traits traits = traits_of(protection, false);
  if (how == placement::if_free) {
    if (!addresses_.take_at(range, traits)) return EEXIST;
  } else {
    const address_map::parts parts = take_parts(range);
    if (!traits.reserved && may_map_in_place(range, parts)) return map_in_place(range, parts, traits);
    const int refused = empty_parts(range, parts, false, protection);
    if (refused != 0) return refused;
    addresses_.use(range, traits);
  }
  const int failure = traits.reserved ? 0 : open_part(range, protection, false);
  if (failure == 0) return 0;
  for (const address_map::part& part : addresses_.remove(range)) addresses_.put_back(part.range);
  return failure;
}

// Takes addresses from whoever uses them; nobody else gets them meanwhile. A thread that is about to give up a part,
// and holds it for a moment more, is waited for.
address_map::parts far_pager::take_parts(page_range range) {
  backoff waiting;
  std::optional<address_map::parts> parts;
  while (!(parts = addresses_.take_over(range))) waiting.pause();
  return std::move(*parts);
}

int far_pager::take_over(page_range range, bool keep_foreign, int protection) {
  return empty_parts(range, take_parts(range), keep_foreign, protection);
}

// Empties a range that was taken over. `keep_foreign`: what is the kernel's stays mapped. `protection`: of what is to
// come, if it is ours. What can be refused is found out before anything is dropped.
int far_pager::empty_parts(page_range range, const address_map::parts& parts, bool keep_foreign, int protection) {
  const int refused = prepare_to_replace(parts, protection);
  if (refused != 0) return give_parts_back(range, parts, 0), refused;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int failure = keep_foreign && parts[i].traits.foreign ? 0 : empty_part(parts[i]);
    if (failure != 0) return give_parts_back(range, parts, i), failure;
  }
  return 0;
}

// Whether a range that was taken over is ordinary memory of ours, without holes: then new memory in its place is the
// same without its bytes, and nobody need be asked for room. Whole blocks are given back all the same, since what is
// allocated anew costs no misses until it is evicted.
bool far_pager::may_map_in_place(page_range range, const address_map::parts& parts) {
  std::uint64_t known = 0;
  for (const address_map::part& part : parts) {
    if (part.traits.protection == PROT_NONE || part.traits != mapping_traits(part.traits.protection)) return false;
    known += part.range.count;
  }
  return known == range.count && range.count < engine::block_pages;
}

int far_pager::map_in_place(page_range range, const address_map::parts& parts, const mapping_traits& traits) {
  const int refused = protect_parts(parts, traits.protection);
  if (refused != 0) return give_parts_back(range, parts, 0), refused;
  engine_->ranges().discard(range);
  addresses_.use(range, traits);
  return 0;
}

// A range that was taken over: the parts from this one on stay as they are, the rest is free.
void far_pager::give_parts_back(page_range range, const address_map::parts& parts, std::size_t first_kept) {
  page_id done = range.first;
  for (std::size_t i = first_kept; i < parts.size(); ++i) {
    const page_range kept = parts[i].range;
    if (kept.first > done) addresses_.put_back({done, static_cast<std::size_t>(kept.first - done)});
    addresses_.use(kept, parts[i].traits);
    done = kept.end();
  }
  if (range.end() > done) addresses_.put_back({done, static_cast<std::size_t>(range.end() - done)});
}

// Finds out whether the kernel would refuse what is to come in place of these parts: for want of mappings, or because
// of a limit on writable memory. Where it would, everything is as before.
int far_pager::prepare_to_replace(const address_map::parts& parts, int protection) {
  const auto holds_something = [](const address_map::part& part) { return !part.traits.reserved; };
  if (std::none_of(parts.begin(), parts.end(), holds_something)) return 0;
  return room_for_mappings() ? protect_parts(parts, protection) : ENOMEM;
}

// Gives what is ours and can be accessed the kernel's protection of what comes in its place; all of it, or nothing.
int far_pager::protect_parts(const address_map::parts& parts, int protection) {
  if (protection == PROT_NONE) return 0;
  const auto set = [this, protection](const address_map::part& part, int wanted) {
    if (part.traits.foreign || part.traits.reserved) return 0;
    if (!part.traits.fenced && part.traits.protection == protection) return 0;
    return set_kernel_protection(address_of(part.range.first), part.range.count << page_shift, wanted);
  };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int failure = set(parts[i], protection);
    if (failure == 0) continue;
    for (; i < parts.size(); --i) {
      const mapping_traits& before = parts[i].traits;
      static_cast<void>(set(parts[i], before.fenced ? PROT_NONE : before.protection));
    }
    return failure;
  }
  return 0;
}

// ---- what is the kernel's ----

result<void> far_pager::hand_over(std::byte* address, std::size_t bytes, placement how,
                                  const std::function<int()>& place) {
  if (!holds_whole(address, bytes)) return no_room(bytes);
  return outcome("mmap", inside([&] { return do_hand_over(pages_in(address, bytes), how, place); }));
}

int far_pager::do_hand_over(page_range range, placement how, const std::function<int()>& place) {
  mapping_traits traits;
  traits.foreign = true;
  if (how == placement::if_free) {
    if (!addresses_.take_at(range, traits)) return EEXIST;
    static_cast<void>(addresses_.remove(range));
  } else {
    const int refused = take_over(range, true, PROT_NONE);
    if (refused != 0) return refused;
  }
  engine_->ranges().hand_over(range);
  const int failure = place();
  if (failure == 0) {
    addresses_.use(range, traits);
  } else {
    // The kernel, too, may have unmapped what was there before it found that it cannot go on.
    const int kept = reserve_again(address_of(range.first), range.count << page_shift, MAP_FIXED);
    if (kept == 0) {
      addresses_.put_back(range);
    } else {
      addresses_.use(range, traits);
    }
  }
  return failure;
}

result<bool> far_pager::replace_foreign(std::byte* address, std::size_t bytes, const std::function<int()>& place) {
  if (!holds_whole(address, bytes)) return no_room(bytes);
  bool replaced = false;
  const int failure = inside([&] {
    const page_range range = pages_in(address, bytes);
    const address_map::parts parts = take_parts(range);
    std::uint64_t foreign = 0;
    for (const address_map::part& part : parts) foreign += part.traits.foreign ? part.range.count : 0;
    replaced = foreign == range.count;
    const int refused = replaced ? place() : 0;
    give_parts_back(range, parts, 0);
    return refused;
  });
  if (failure != 0) return failed("mmap", failure);
  return replaced;
}

result<void> far_pager::take_back(std::byte* address, std::size_t bytes) {
  const memory_call call(gate_);
  for (const address_map::part& part : addresses_.remove(pages_in(address, bytes))) {
    // Another thread may have been given the place by the kernel meanwhile: then it stays the kernel's.
    const int taken = reserve_again(address_of(part.range.first), part.range.count << page_shift, MAP_FIXED_NOREPLACE);
    if (taken == 0) {
      addresses_.put_back(part.range);
    } else {
      addresses_.use(part.range, part.traits);
    }
  }
  return {};
}

result<pager::origin> far_pager::origin_of(const std::byte* address, std::size_t bytes) const {
  if (!holds_whole(address, bytes)) return failed("a range", EFAULT);
  bool any_far = false;
  bool any_foreign = false;
  const int failure = inside([&] {
    return for_each_part(pages_in(address, bytes), at_hole::stop, [&](const address_map::part& part) {
      (part.traits.foreign ? any_foreign : any_far) = true;
      return 0;
    });
  });
  if (failure != 0 || any_far == any_foreign) return failed("a range", EFAULT);
  return any_far ? origin::far : origin::foreign;
}

result<pager::mapping> far_pager::mapping_at(const std::byte* address, std::size_t bytes) const {
  const platform::signal_shield shield;
  const page_range range = pages_in(address, bytes);
  const address_map::parts holders = look(range);
  const address_map::part* const holder = holders.empty() ? nullptr : &holders.front();
  if (holder == nullptr || holder->traits.foreign || holder->range.first != range.first) {
    return error{"nothing of ours is mapped there", EFAULT};
  }
  return mapping{holder->traits.protection, holder->traits.fenced, holder->traits.locked,
                 holder->range.count << page_shift};
}

// What is in use of a range, once nobody is at work on a part of it.
address_map::parts far_pager::look(page_range range) const {
  backoff waiting;
  std::optional<address_map::parts> parts;
  while (!(parts = addresses_.look(range))) waiting.pause();
  return std::move(*parts);
}

// ---- munmap ----

result<void> far_pager::unmap(std::byte* address, std::size_t bytes) {
  return outcome("munmap", inside([&] { return do_unmap(pages_in(address, bytes)); }));
}

// A part that another call has taken out, and is about to put back, is waited for: it would outlive the call.
int far_pager::do_unmap(page_range range) {
  backoff waiting;
  std::optional<address_map::parts> parts;
  while (!(parts = addresses_.remove_whole(range))) waiting.pause();
  int failure = 0;
  for (const address_map::part& part : *parts) {
    const int refused = close_part(part);
    if (failure == 0) failure = refused;
  }
  return failure;
}

// Takes a part that was removed from use back from the program and the engine, and frees its addresses. Where the
// kernel refuses, it is in use as before.
int far_pager::close_part(const address_map::part& part) {
  const int failure = empty_part(part);
  if (failure == 0) {
    addresses_.put_back(part.range);
  } else {
    addresses_.use(part.range, part.traits);
  }
  return failure;
}

int far_pager::empty_part(const address_map::part& part) {
  std::byte* const address = address_of(part.range.first);
  const std::size_t bytes = part.range.count << page_shift;
  if (part.traits.foreign) return reserve_again(address, bytes, MAP_FIXED);
  if (!part.traits.reserved) {
    // Locked memory could not be emptied. It fails for memory that is not locked on old kernels, which is as good.
    static_cast<void>(syscall(SYS_munlock, address, bytes));
    // Empty first: taking access away from pages that are mapped costs the kernel a visit to each.
    engine_->ranges().discard(part.range);
    // Without access, if the kernel has room for another mapping; nobody has business there either way.
    const int failure = set_kernel_protection(address, bytes, PROT_NONE);
    FAR_CHECK(failure == 0 || failure == ENOMEM, "the far heap's own range can be protected");
    engine_->ranges().release(part.range);
  }
  // What the kernel was told of these addresses ends with this mapping of them. A new reservation is not guarded, so it
  // counts as foreign until it is allocated.
  if ((part.traits.locked || part.traits.kernel_marked) && reserve_again(address, bytes, MAP_FIXED) == 0) {
    engine_->ranges().hand_over(part.range);
  }
  return 0;
}

// ---- mprotect ----

result<void> far_pager::protect(std::byte* address, std::size_t bytes, int protection) {
  return outcome("mprotect", inside([&] {
                   return for_each_part(pages_in(address, bytes), at_hole::stop,
                                        [&](const address_map::part& part) { return protect_part(part, protection); });
                 }));
}

// The kernel's protection and ours change while nobody else sees the part: give_up_if_empty() of another thread must
// not come in between.
int far_pager::protect_part(const address_map::part& seen, int protection) {
  int failure = 0;
  for (address_map::part& part : addresses_.remove(seen.range)) {
    if (failure == 0) failure = protect_removed(part, protection);
    addresses_.use(part.range, part.traits);
  }
  if (failure == 0 && protection == PROT_NONE) give_up_if_empty(seen.range);
  return failure;
}

int far_pager::protect_removed(address_map::part& part, int protection) {
  mapping_traits& traits = part.traits;
  const bool only_noted = traits.fenced || (traits.reserved && protection == PROT_NONE);
  int failure = 0;
  if (!only_noted && traits.reserved) {
    failure = open_part(part.range, protection, false);
    if (failure == 0) traits.reserved = false;
  } else if (!only_noted) {
    failure = set_kernel_protection(address_of(part.range.first), part.range.count << page_shift, protection);
  }
  if (failure == 0 && !traits.foreign) traits.protection = protection;
  return failure;
}

// What was only reserved becomes memory. Another thread may have done it meanwhile.
int far_pager::open_reserved(page_range range, int protection) {
  int failure = 0;
  for (address_map::part& part : addresses_.remove(range)) {
    if (failure == 0 && part.traits.reserved) {
      failure = open_part(part.range, protection, false);
      if (failure == 0) part.traits.reserved = false;
      if (failure == 0) part.traits.protection = protection;
    }
    addresses_.use(part.range, part.traits);
  }
  return failure;
}

// Memory that nobody can touch, and in which nothing is, is only reserved again.
void far_pager::give_up_if_empty(page_range range) {
  for (address_map::part& part : addresses_.remove(range)) {
    const bool idle = !part.traits.foreign && !part.traits.reserved && !part.traits.locked &&
                      (part.traits.protection == PROT_NONE || part.traits.fenced);
    if (idle && engine_->ranges().release_if_empty(part.range)) part.traits.reserved = true;
    addresses_.use(part.range, part.traits);
  }
}

}  // namespace far::pager
