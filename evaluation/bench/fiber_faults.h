// Hardware faults of fibers, for `farheap-bench fiber`.
#pragma once

#include "base/result.h"

namespace far::bench {

// The cost of a miss, on average: a page of a far tier that takes 20 us for a read, evicting another page included.
struct fault_cost {
  double elapsed_ns = 0;
  double cpu_ns = 0;  // of the whole process
};

// About `accesses` reads of random pages, most of them misses, by `fibers` fibers on one worker, of a far heap eight
// times the budget. Fails without permission for userfaultfd.
[[nodiscard]] result<fault_cost> measure_faults(unsigned fibers, unsigned accesses);

}  // namespace far::bench
