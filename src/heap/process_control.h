// The far::runtime objects of a process as one, seen from outside. `farheap stats`, `resize`, `top` and `add-server`
// name a process, so statistics are sums, a budget is shared in proportion to the chosen ones, and a server is added to
// every far tier that consists of servers.
//
// Under `farheap run` its runtime answers for the process instead, and is the host of this one (control/guest.h): all
// far heaps of the process share the budget of `farheap run`.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "pager/far_heap.h"

namespace far::heap {

// From now on the process answers for this runtime, too, or its host does. The runtime's budget is what was chosen for
// it; under a host it may be lower from here on. Where something else answers for the process and is no host, such as a
// second copy of this library, a line in the log says that the runtime has a budget of its own.
void answer_for(pager::far_heap& one);
// Ends that. Requires: answer_for().
void stop_answering_for(pager::far_heap& one) noexcept;

// The program chooses another budget for a runtime for which the process answers. Under a host that is the most that it
// gets. Errors: as of far_heap::resize.
[[nodiscard]] result<void> choose_budget(pager::far_heap& one, std::uint64_t budget_bytes);

}  // namespace far::heap
