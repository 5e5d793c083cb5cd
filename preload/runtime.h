// The one process-wide runtime of the run door: started before the program, reporting after it.
#pragma once

#include "pager/pager.h"

namespace far::preload {

// The pager that serves this process, or nullptr: before start-up, and in processes that `farheap run` did not set up.
[[nodiscard]] pager::pager* active_pager() noexcept;

// Writes what `farheap run` promises at exit, once. For the ways out of a process that run no destructors.
void report_at_exit() noexcept;

}  // namespace far::preload
