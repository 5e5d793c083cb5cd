// The signal handler of fault_mode::in_line: a miss is a SIGBUS to the missing thread, which resolves it itself.
#pragma once

#include <signal.h>

#include "base/result.h"

namespace far::pager {

class miss_resolver;

// From now on SIGBUS in the far heap of `misses` is a miss; any other SIGBUS goes to the handler that the program had.
// Fails when too many pagers have the signal. With fibers, the handler runs on the stack of the fiber that misses. The
// run door takes the signal over, and with it all later handlers of the program (preload/signals.h).
[[nodiscard]] result<void> install_inline_guard(miss_resolver& misses);
void remove_inline_guard(miss_resolver& misses);

// Whether a SIGBUS is about an access to a page that may not be there. Not one that somebody sent, which has no
// address, nor one about bytes that the machine's memory has lost: the page is there, and would be found so for ever.
[[nodiscard]] bool may_be_miss(const siginfo_t& info) noexcept;

// Whether a fault in the far heap is the program's own: of a file, say, that it has mapped there and that has become
// shorter. A fault that was ours when it was raised, before the other mapping came, does not repeat.
[[nodiscard]] bool is_of_foreign(const miss_resolver& misses, const void* address) noexcept;

}  // namespace far::pager
