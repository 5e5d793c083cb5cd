// far::tag: replacement for each data structure (AIFM, section 4.3).
#pragma once

#include "far/detail/api.h"
#include "far/runtime.h"

namespace far {

// How the objects of a tag leave local memory.
struct replacement {
  // How many bits count the uses of a page, 0 to 3 (a generalised CLOCK). A page stays for as many more looks of the
  // evictor as it was found used before, at most 2^hotness_bits - 1. 1: a second chance. 0: in the order of their
  // coming (FIFO), whatever is used: for what is read once, from beginning to end. More: for what is used again after
  // long pauses, such as an index beside what it points to.
  unsigned hotness_bits = 1;
};

// A data structure's mark on its objects: those of one tag lie together, apart from others, and leave as it says. Give
// it to far::make_unique or far::make_shared in place of the runtime. A value to copy; it lasts as long as its runtime.
class FAR_API tag {
 public:
  // The tag of everything that has no other. Not explicit, so that functions that take a tag can be given a runtime.
  tag(runtime& home) : runtime_(&home) {}
  // A new one. A runtime has at most 15, for good; throws std::runtime_error when there are as many, and
  // std::invalid_argument when `how` is out of range.
  tag(runtime& home, replacement how);

  [[nodiscard]] runtime& home() const { return *runtime_; }
  [[nodiscard]] unsigned number() const { return number_; }

 private:
  runtime* runtime_;
  unsigned number_ = 0;
};

}  // namespace far
