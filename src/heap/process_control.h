// `farheap stats`, `resize`, `top` and `add-server` in a process with far::runtime objects. The process is what they
// name, so they are about all of its runtimes together: statistics are sums, a budget is shared out in the proportion
// of the budgets before, and a server is added to every far tier that consists of servers.
#pragma once

#include <cstdint>

#include "pager/far_heap.h"

namespace far::heap {

// From now on the process answers for this runtime, too. Where another runtime answers for the process already, that of
// `farheap run` above all, it goes on doing so, and a line in the log says that this one has a budget of its own.
void answer_for(pager::far_heap& one);
// No more. Requires: answer_for().
void stop_answering_for(pager::far_heap& one) noexcept;

}  // namespace far::heap
