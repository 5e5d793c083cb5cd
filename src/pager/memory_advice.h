// madvise in the far heap. docs/run.md has the table of its effects.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "engine/eviction_control.h"
#include "engine/host.h"
#include "engine/page_ranges.h"
#include "pager/mapped_parts.h"
#include "pager/memory_locks.h"
#include "pager/software_accesses.h"

namespace far::pager {

class memory_advice {
 public:
  // Requires: all references outlive this object.
  memory_advice(mapped_parts& parts, memory_locks& locks, engine::page_ranges& ranges,
                engine::eviction_control& eviction, software_accesses& accesses, engine::host& around)
      : parts_(parts), locks_(locks), ranges_(ranges), eviction_(eviction), accesses_(accesses), host_(around) {}

  // As in mappings and far_heap.
  [[nodiscard]] result<void> advise(std::byte* address, std::size_t bytes, int advice);
  [[nodiscard]] result<void> discard(std::byte* address, std::size_t bytes);
  void evict(page_range range);

  // Inside the gate: makes a part that is out inaccessible (MADV_GUARD_INSTALL), or ends that. Returns 0 or an errno
  // value.
  [[nodiscard]] int fence_taken(address_map::part& one, bool install);
  // Gives the kernel the advice for `range` that it has for memory with these traits, and keeps with the mapping.
  [[nodiscard]] int repeat_marks(page_range range, const mapping_traits& traits) const;

  // In the child of a fork, before the program continues: removes what the child does not inherit.
  void settle_in_child();

 private:
  [[nodiscard]] static bool discards(int advice);
  [[nodiscard]] int push_out(page_range range, int advice);
  [[nodiscard]] int advise_part(const address_map::part& part, int advice);
  [[nodiscard]] int discard_part(const address_map::part& part);
  [[nodiscard]] int note_of_child(page_range range, int advice);
  [[nodiscard]] int tell_kernel(const address_map::part& part, int advice) const;
  [[nodiscard]] int mark(const address_map::part& part, int advice);
  [[nodiscard]] int fence(const address_map::part& part, bool install);
  [[nodiscard]] int install_fence(address_map::part& one);
  [[nodiscard]] int remove_fence(address_map::part& one);
  [[nodiscard]] int populate_part(const address_map::part& part, bool write);

  mapped_parts& parts_;
  memory_locks& locks_;
  engine::page_ranges& ranges_;
  engine::eviction_control& eviction_;
  software_accesses& accesses_;
  engine::host& host_;
};

}  // namespace far::pager
