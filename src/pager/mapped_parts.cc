#include "pager/mapped_parts.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "pager/memory_results.h"

namespace far::pager {

mapped_parts::mapped_parts(const platform::heap_layout& heap, engine::page_ranges& ranges,
                           const engine::eviction_control& eviction, engine::host& around)
    : heap_(heap),
      ranges_(ranges),
      eviction_(eviction),
      host_(around),
      addresses_(heap.bytes() >> page_shift, reinterpret_cast<std::uintptr_t>(heap.base()) >> page_shift) {}

namespace {

// With a key that was set before, and of which the kernel may not know yet. The program may have freed it meanwhile:
// then the memory has none.
int set_with_kept_key(std::byte* address, std::size_t bytes, int protection, int key) {
  const int failure = set_kernel_protection(address, bytes, protection, key);
  return failure == EINVAL && key != no_key ? set_kernel_protection(address, bytes, protection) : failure;
}

}  // namespace

mapped_parts::parts mapped_parts::look(page_range range) const {
  backoff waiting;
  std::optional<parts> found;
  while (!(found = addresses_.look(range))) waiting.pause();
  return std::move(*found);
}

// ---- parts that come into use, change, and go ----

int mapped_parts::open(page_range range, const mapping_traits& traits, bool guarded) {
  const result<void> allocated = guarded ? ranges_.allocate_guarded(range) : ranges_.allocate(range);
  if (!allocated) return allocated.error().code != 0 ? allocated.error().code : ENOMEM;
  const int failure = set_with_kept_key(address_of(range), bytes_of(range), traits.protection, traits.key);
  if (failure != 0) {
    ranges_.release(range);
    return failure;
  }
  if (eviction_.wants_background()) host_.wake_background();
  return 0;
}

int mapped_parts::open_or_put_back(page_range range, const mapping_traits& traits, bool guarded) {
  const int failure = traits.reserved ? 0 : open(range, traits, guarded);
  if (failure != 0) {
    for (const part& mapped : addresses_.remove(range)) addresses_.put_back(mapped.range);
  }
  return failure;
}

// It waits for parts that another call has taken out and is about to put back: that call knows nothing of this one.
mapped_parts::parts mapped_parts::take_out(page_range range) {
  backoff waiting;
  std::optional<parts> found;
  while (!(found = addresses_.remove_whole(range))) waiting.pause();
  return std::move(*found);
}

int mapped_parts::unmap(page_range range) {
  int failure = 0;
  for (const part& one : take_out(range)) {
    const int refused = close(one);
    if (failure == 0) failure = refused;
  }
  return failure;
}

int mapped_parts::close(const part& one) {
  const int failure = empty(one);
  if (failure == 0) {
    addresses_.put_back(one.range);
  } else {
    addresses_.use(one.range, one.traits);
  }
  return failure;
}

int mapped_parts::empty(const part& one) {
  std::byte* const address = address_of(one.range);
  const std::size_t bytes = bytes_of(one.range);
  if (one.traits.foreign) return reserve_again(address, bytes, MAP_FIXED);
  if (!one.traits.reserved) {
    // Locked memory could not be emptied. It fails for memory that is not locked on old kernels, which is as good.
    static_cast<void>(syscall(SYS_munlock, address, bytes));
    // Empty first: taking access away from pages that are mapped costs the kernel a visit to each.
    ranges_.discard(one.range);
    // Without access, if the kernel has room for another mapping; nobody has business there either way.
    const int failure = set_kernel_protection(address, bytes, PROT_NONE);
    FAR_CHECK(failure == 0 || failure == ENOMEM, "the far heap's own range can be protected");
    ranges_.release(one.range);
  }
  // Everything that the kernel was told of these addresses ends with this mapping of them. A new reservation is not
  // guarded, so it counts as foreign until it is allocated.
  if ((one.traits.locked || one.traits.kernel_marked) && reserve_again(address, bytes, MAP_FIXED) == 0) {
    ranges_.hand_over(one.range);
  }
  return 0;
}

int mapped_parts::protect(const part& seen, int protection, int key) {
  const int failure = alter(seen.range, [&](part& one) { return protect_taken(one, protection, key); });
  if (failure == 0 && protection == PROT_NONE) give_up_if_empty(seen.range);
  return failure;
}

int mapped_parts::protect_taken(part& one, int protection, int key) {
  // Of several mappings the kernel may have given the key to some before it fails.
  if (key != no_key && !one.traits.foreign) one.traits.kernel_marked = true;
  mapping_traits wanted = one.traits;
  wanted.protection = protection;
  if (key != no_key) wanted.key = static_cast<std::int8_t>(key);
  wanted.kernel_marked |= wanted.is_marked();
  const bool only_noted = wanted.fenced || (wanted.reserved && protection == PROT_NONE);
  int failure = 0;
  if (!only_noted && wanted.reserved) {
    wanted.reserved = false;
    failure = open(one.range, wanted, false);
  } else if (!only_noted) {
    // Without a key the kernel keeps the one that it knows, even one that the program has freed meanwhile.
    const bool kept = key == one.traits.key;
    failure = kept ? set_with_kept_key(address_of(one.range), bytes_of(one.range), protection, key)
                   : set_kernel_protection(address_of(one.range), bytes_of(one.range), protection, key);
  }
  if (failure == 0 && !wanted.foreign) one.traits = wanted;
  return failure;
}

bool mapped_parts::any_sealed(page_range range) const {
  const parts found = look(range);
  return std::any_of(found.begin(), found.end(), [](const part& one) { return one.traits.sealed; });
}

void mapped_parts::give_up_if_empty(page_range range) {
  for (part& one : addresses_.remove(range)) {
    const bool idle = !one.traits.foreign && !one.traits.reserved && !one.traits.locked &&
                      (one.traits.protection == PROT_NONE || one.traits.fenced);
    if (idle && ranges_.release_if_empty(one.range)) one.traits.reserved = true;
    addresses_.use(one.range, one.traits);
  }
}

// ---- ranges that are taken from their users ----

mapped_parts::parts mapped_parts::take(page_range range) {
  backoff waiting;
  std::optional<parts> found;
  while (!(found = addresses_.take_over(range))) waiting.pause();
  return std::move(*found);
}

int mapped_parts::empty(page_range range, const parts& taken, bool keep_foreign, int protection) {
  const int refused = prepare_to_replace(taken, protection);
  if (refused != 0) return give_back(range, taken, 0), refused;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const int failure = keep_foreign && taken[i].traits.foreign ? 0 : empty(taken[i]);
    if (failure != 0) return give_back(range, taken, i), failure;
  }
  return 0;
}

// Finds out whether the kernel would refuse what is to come in place of these parts: for want of mappings, or because
// of a limit on writable memory. Where it would, everything is as before.
int mapped_parts::prepare_to_replace(const parts& taken, int protection) {
  const auto holds_something = [](const part& one) { return !one.traits.reserved; };
  if (std::none_of(taken.begin(), taken.end(), holds_something)) return 0;
  return room_for_mappings() ? protect_all(taken, protection) : ENOMEM;
}

int mapped_parts::protect_all(const parts& taken, int protection) {
  if (protection == PROT_NONE) return 0;
  const auto set = [this, protection](const part& one, int wanted) {
    if (one.traits.foreign || one.traits.reserved) return 0;
    if (!one.traits.fenced && one.traits.protection == protection) return 0;
    return set_kernel_protection(address_of(one.range), bytes_of(one.range), wanted);
  };
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const int failure = set(taken[i], protection);
    if (failure == 0) continue;
    for (; i < taken.size(); --i) {
      const mapping_traits& before = taken[i].traits;
      static_cast<void>(set(taken[i], before.fenced ? PROT_NONE : before.protection));
    }
    return failure;
  }
  return 0;
}

void mapped_parts::give_back(page_range range, const parts& taken, std::size_t first_kept) {
  page_id done = range.first;
  for (std::size_t i = first_kept; i < taken.size(); ++i) {
    const page_range kept = taken[i].range;
    if (kept.first > done) addresses_.put_back({done, static_cast<std::size_t>(kept.first - done)});
    addresses_.use(kept, taken[i].traits);
    done = kept.end();
  }
  if (range.end() > done) addresses_.put_back({done, static_cast<std::size_t>(range.end() - done)});
}

// ---- fork ----

// Held from before the fork to after it.
void mapped_parts::lock_for_fork() FAR_UNCHECKED_LOCKING {
  gate_.close();
  addresses_.lock();
}

void mapped_parts::unlock_after_fork() FAR_UNCHECKED_LOCKING {
  addresses_.unlock();
  gate_.open();
}

void mapped_parts::unlock_in_child() {
  addresses_.open_in_child();
  gate_.open_in_child();
}

}  // namespace far::pager
