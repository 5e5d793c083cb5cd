// The processors that the system lets this thread use.
#pragma once

#include <sched.h>

namespace far::platform {

// Whether another thread can run while this one spins: on a single processor, spinning for another thread is useless.
// Read once; a process that is moved to other processors keeps its first answer.
inline bool has_several_processors() {
  static const bool several = [] {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    // More processors than fit into the set: an error, and certainly several.
    return sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) > 1;
  }();
  return several;
}

}  // namespace far::platform
