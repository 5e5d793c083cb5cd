// The processors that the system lets this thread use.
#pragma once

#include <sched.h>

namespace far::platform {

// Whether somebody else can run while this thread spins: looking for what another thread does is of no use on the only
// processor. Read once; a process moved to other processors later keeps its first answer.
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
