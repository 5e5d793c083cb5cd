// mlock in the far heap. docs/run.md describes its effects.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "pager/mapped_parts.h"
#include "pager/page_holds.h"

namespace far::pager {

class memory_locks {
 public:
  // Requires: both outlive this.
  memory_locks(mapped_parts& parts, page_holds& holds) : parts_(parts), holds_(holds) {}

  static constexpr unsigned on_fault = 1;  // MLOCK_ONFAULT

  // The flags with which memory of this kind was locked.
  [[nodiscard]] static unsigned flags_of(const mapping_traits& traits) { return traits.locked_on_fault ? on_fault : 0; }

  // As in mappings.
  [[nodiscard]] result<void> lock(std::byte* address, std::size_t bytes, unsigned flags);
  [[nodiscard]] result<void> fill(std::byte* address, std::size_t bytes);
  [[nodiscard]] result<void> unlock(std::byte* address, std::size_t bytes);
  void unlock_all();

  // Inside the gate. Return 0 or an errno value.
  [[nodiscard]] int lock_part(const address_map::part& part, unsigned flags);
  [[nodiscard]] int unlock_part(const address_map::part& part);
  // Of a part that is out: locks it, and leaves it to be filled.
  [[nodiscard]] int lock_taken(address_map::part& one) const;

 private:
  void unlock_all_in(page_range range);
  [[nodiscard]] int fill_part(const address_map::part& part);
  [[nodiscard]] int tell_kernel(const address_map::part& part, unsigned flags) const;

  mapped_parts& parts_;
  page_holds& holds_;
};

}  // namespace far::pager
