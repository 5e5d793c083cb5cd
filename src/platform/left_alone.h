// How a runtime asks for mappings that no other runtime in the process makes far: under `farheap run`, those of a
// far::runtime in the program, whose mmap is the run door's.
#pragma once

#include <linux/mman.h>

namespace far::platform {

// A flag for mmap. The kernel looks at these bits, the size of huge pages, only if MAP_HUGETLB is set as well.
inline constexpr int left_alone = 42 << MAP_HUGE_SHIFT;
constexpr bool is_left_alone(int flags) {
  return (flags & MAP_HUGETLB) == 0 && (flags & (MAP_HUGE_MASK << MAP_HUGE_SHIFT)) == left_alone;
}

}  // namespace far::platform
