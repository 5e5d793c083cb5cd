#include "pager/memory_locks.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

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
    return part.traits.foreign || accessible(part.traits) ? lock_part(part, 0) : ENOMEM;
  }));
}

result<void> memory_locks::unlock(std::byte* address, std::size_t bytes) {
  return outcome("munlock", parts_.inside([&] {
    return parts_.for_each(parts_.pages_in(address, bytes), mapped_parts::at_hole::go_on,
                           [this](const address_map::part& part) { return unlock_part(part); });
  }));
}

void memory_locks::unlock_all() {
  parts_.inside([this] {
    for (const address_map::part& part :
         parts_.addresses().find_all([](const mapping_traits& traits) { return traits.locked; })) {
      static_cast<void>(unlock_part(part));  // there is nothing that munlock could refuse
    }
    return 0;
  });
}

// The kernel fills what it locks. It finds all of it here, also where it could not wait for a miss.
int memory_locks::lock_part(const address_map::part& part, unsigned flags) {
  std::byte* const address = parts_.address_of(part.range);
  const std::size_t bytes = parts_.bytes_of(part.range);
  const bool fill = !part.traits.foreign && accessible(part.traits) && (flags & on_fault) == 0;
  if (!part.traits.foreign && !accessible(part.traits)) flags |= on_fault;
  if (fill) holds_.pin(address, bytes);
  const int failure = syscall(SYS_mlock2, address, bytes, flags) == 0 ? 0 : errno;
  if (fill) holds_.unpin(address, bytes);
  // Memory that the kernel could not fill is locked all the same; memory that the limit refuses is not. The map must
  // know.
  const bool locked = failure == 0 || (failure == ENOMEM && syscall(SYS_mlock2, address, bytes, on_fault) == 0);
  if (locked && !part.traits.foreign) {
    parts_.addresses().change(part.range, [](mapping_traits& traits) { traits.locked = true; });
  }
  return failure;
}

int memory_locks::unlock_part(const address_map::part& part) {
  const int failure = syscall(SYS_munlock, parts_.address_of(part.range), parts_.bytes_of(part.range)) == 0 ? 0 : errno;
  if (failure == 0) parts_.addresses().change(part.range, [](mapping_traits& traits) { traits.locked = false; });
  return failure;
}

}  // namespace far::pager
