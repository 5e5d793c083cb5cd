// mremap in the far heap. Remote bytes only change their address: nothing is fetched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "engine/page_ranges.h"
#include "pager/mapped_parts.h"
#include "pager/mappings.h"
#include "pager/memory_advice.h"
#include "pager/memory_locks.h"
#include "platform/heap_layout.h"

namespace far::pager {

class memory_moves {
 public:
  using remapping = mappings::remapping;

  // Requires: all references outlive this object.
  memory_moves(const platform::heap_layout& heap, mapped_parts& parts, memory_locks& locks, memory_advice& advice,
               engine::page_ranges& ranges)
      : heap_(heap), parts_(parts), locks_(locks), advice_(advice), ranges_(ranges) {}

  // As in mappings.
  [[nodiscard]] result<std::byte*> remap(std::byte* address, std::size_t old_bytes, std::size_t new_bytes,
                                         const remapping& how);

 private:
  struct arrival {
    page_id first = 0;
    page_range to_fill{0, 0};  // what is locked and may not be resident yet
  };

  // Inside the gate. They return 0 or an errno value.
  [[nodiscard]] int remap(page_range range, std::uint64_t new_count, const remapping& how, arrival* there);
  [[nodiscard]] int remap_taken(page_range range, address_map::parts& source, std::uint64_t new_count,
                                const remapping& how, arrival* there);
  [[nodiscard]] int grow_in_place(page_range range, std::uint64_t more, const mapping_traits& grown, arrival* there);
  [[nodiscard]] int move_parts(page_range range, address_map::parts& source, std::uint64_t new_count,
                               const remapping& how, arrival* there);
  [[nodiscard]] int open_target(page_range range, const address_map::parts& source, page_range target,
                                const mapping_traits& traits);
  void use_target(page_range range, const address_map::parts& source, page_range target, const mapping_traits& traits);
  void leave_empty(address_map::part& part);
  void empty_again(page_range target, const mapping_traits& traits);
  [[nodiscard]] int unlock_source(page_range range);
  [[nodiscard]] int take_target(const remapping& how, int protection, page_range* target);

  const platform::heap_layout& heap_;
  mapped_parts& parts_;
  memory_locks& locks_;
  memory_advice& advice_;
  engine::page_ranges& ranges_;
};

}  // namespace far::pager
