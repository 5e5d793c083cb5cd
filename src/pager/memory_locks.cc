#include "pager/memory_locks.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/units.h"
#include "pager/memory_results.h"

namespace far::pager {
namespace {

bool accessible(const mapping_traits& traits) {
  return !traits.fenced && traits.protection != PROT_NONE;
}

}  // namespace

// As the kernel does it: all is locked at once, or what the limit allows, and filled afterwards.
result<void> memory_locks::lock(std::byte* address, std::size_t bytes, unsigned flags) {
  const int failure = parts_.inside([&] {
    return parts_.for_each(parts_.pages_in(address, bytes), mapped_parts::at_hole::stop,
                           [this](const address_map::part& part) { return lock_part(part, on_fault); });
  });
  return failure != 0 || (flags & on_fault) != 0 ? outcome("mlock", failure) : fill(address, bytes);
}

result<void> memory_locks::fill(std::byte* address, std::size_t bytes) {
  return outcome("mlock", parts_.for_each_block(parts_.pages_in(address, bytes), [&](const address_map::part& part) {
    if (!part.traits.foreign && !part.traits.locked) return 0;  // it was unlocked, or mapped anew, meanwhile
    // Inaccessible memory is locked as well, but the kernel then fills nothing from there on, and says so.
    return part.traits.foreign || accessible(part.traits) ? fill_part(part) : ENOMEM;
  }));
}

result<void> memory_locks::unlock(std::byte* address, std::size_t bytes) {
  return outcome("munlock", parts_.inside([&] {
    return parts_.for_each(parts_.pages_in(address, bytes), mapped_parts::at_hole::go_on,
                           [this](const address_map::part& part) { return unlock_part(part); });
  }));
}

void memory_locks::unlock_all() {
  parts_.for_each_range([this](page_range range) { unlock_all_in(range); });
}

// Parts that another call is at work on are waited for, but not all at once: in a large heap there may always be one.
void memory_locks::unlock_all_in(page_range range) {
  constexpr std::size_t most_to_wait_for = gib >> page_shift;
  const bool is_done = parts_.inside([&] {
    std::optional<address_map::parts> found = parts_.addresses().look(range);
    if (!found && range.count <= most_to_wait_for) found = parts_.look(range);
    if (!found) return false;
    for (const address_map::part& part : *found) {
      if (part.traits.locked) static_cast<void>(unlock_part(part));  // there is nothing that munlock could refuse
    }
    return true;
  });
  if (is_done) return;
  const std::size_t half = range.count / 2;
  unlock_all_in({range.first, half});
  unlock_all_in({range.first + half, range.count - half});
}

int memory_locks::tell_kernel(const address_map::part& part, unsigned flags) const {
  return syscall(SYS_mlock2, parts_.address_of(part.range), parts_.bytes_of(part.range), flags) == 0 ? 0 : errno;
}

// Memory that cannot be filled is locked all the same.
int memory_locks::lock_part(const address_map::part& part, unsigned flags) {
  const int failure = parts_.alter(part.range, [this](address_map::part& one) { return lock_taken(one); });
  const bool fills = (flags & on_fault) == 0 && (part.traits.foreign || accessible(part.traits));
  return failure == 0 && fills ? fill_part(part) : failure;
}

int memory_locks::lock_taken(address_map::part& one) const {
  const int refused = tell_kernel(one, on_fault);
  if (refused == 0 && !one.traits.foreign) one.traits.locked = one.traits.locked_on_fault = true;
  return refused;
}

// The kernel finds all of it resident here, also where it could not wait for a miss.
int memory_locks::fill_part(const address_map::part& part) {
  if (part.traits.foreign) return tell_kernel(part, 0);
  std::byte* const address = parts_.address_of(part.range);
  const std::size_t bytes = parts_.bytes_of(part.range);
  holds_.pin(address, bytes);
  const int failure = parts_.alter(part.range, [this](address_map::part& one) {
    if (!one.traits.locked) return 0;  // it was unlocked, or mapped anew, meanwhile
    one.traits.locked_on_fault = false;
    return tell_kernel(one, 0);
  });
  holds_.unpin(address, bytes);
  return failure;
}

int memory_locks::unlock_part(const address_map::part& part) {
  return parts_.alter(part.range, [this](address_map::part& one) {
    const bool unlocked = syscall(SYS_munlock, parts_.address_of(one.range), parts_.bytes_of(one.range)) == 0;
    if (!unlocked) return errno;
    one.traits.locked = one.traits.locked_on_fault = false;
    return 0;
  });
}

}  // namespace far::pager
