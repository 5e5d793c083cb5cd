// Local memory that runs out when a test says so: failing_new.cc replaces the operators new.
#pragma once

#include <atomic>

namespace far {

// How many allocations by the calling thread there are to go before one fails; 0: none does. Below 0, all fail.
inline thread_local int allocations_to_go = 0;

// Otherwise all allocations on fibers fail.
inline std::atomic<bool> fibers_have_memory{true};

}  // namespace far
