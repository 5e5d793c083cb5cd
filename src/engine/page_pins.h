// Pins: pages that stay resident and writable until they are unpinned.
#pragma once

#include "engine/core.h"

namespace far::engine {

class page_pins {
 public:
  explicit page_pins(core_for_ranges& shared) : shared_(shared) {}

  // Fails when the page is not resident and writable now. A page of an open block is mostly made so. One of a fresh
  // block is the kernel's alone, and only counted.
  [[nodiscard]] bool try_pin(page_id page);
  void unpin(page_id page);

 private:
  core_for_ranges& shared_;
};

}  // namespace far::engine
