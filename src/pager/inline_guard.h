// The signal handler of fault_mode::in_line: a miss is a SIGBUS to the missing thread, which resolves it itself.
#pragma once

#include "base/result.h"

struct sigaction;

namespace far::pager {

class miss_resolver;

// From now on SIGBUS in the far heap of `misses` is a miss; any other SIGBUS goes to the handler that the program had,
// or installs later through chained_sigbus_action. Fails when too many pagers have the signal. With fibers, the handler
// runs on the stack of the fiber that misses.
[[nodiscard]] result<void> install_inline_guard(miss_resolver& misses);
void remove_inline_guard(miss_resolver& misses);

// The SIGBUS handler that the program has set, for a door that interposes sigaction(2). Behaves like sigaction(SIGBUS,
// act, old).
[[nodiscard]] bool inline_guard_installed() noexcept;
void chained_sigbus_action(const struct sigaction* act, struct sigaction* old) noexcept;

// Whether a fault in the far heap is the program's own: of a file, say, that it has mapped there and that has become
// shorter. A fault that was ours when it was raised, before the other mapping came, does not repeat.
[[nodiscard]] bool is_of_foreign(const miss_resolver& misses, const void* address) noexcept;

}  // namespace far::pager
