// Pins of the program's memory: pages that stay resident while a system call, or mlock, is at work on them.
#pragma once

#include <cstddef>

#include "engine/page_pins.h"
#include "pager/miss_resolver.h"
#include "platform/heap_layout.h"

namespace far::pager {

class page_holds {
 public:
  // Requires: all references outlive this object.
  page_holds(const platform::heap_layout& heap, engine::page_pins& pins, miss_resolver& misses)
      : heap_(heap), pins_(pins), misses_(misses) {}

  // As in mappings.
  void pin(const std::byte* address, std::size_t bytes);
  void unpin(const std::byte* address, std::size_t bytes);

 private:
  const platform::heap_layout& heap_;
  engine::page_pins& pins_;
  miss_resolver& misses_;
};

}  // namespace far::pager
