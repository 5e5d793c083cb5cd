// fork(2) under the run door. A child sees every byte as it was: it reads pages that were remote at the fork from its
// parent's slots, which stay unchanged until both have released them. Both continue to evict. See
// docs/decisions/0019-fork-that-lasts.md.
#pragma once

#include "pager/pager.h"

namespace far::preload {

// From now on forks of this process prepare and resume `pager` on both sides.
void serve_forks(pager::pager& pager) noexcept;

// Around every call that makes a child with memory of its own, on the thread that makes it, like pthread_atfork
// handlers around fork(2). Requires: not on a far stack.
void begin_fork() noexcept;
void end_fork_in_parent() noexcept;  // also when there is no child after all
void end_fork_in_child() noexcept;
// Whether the calling thread is between two of these.
[[nodiscard]] bool fork_is_under_way() noexcept;

}  // namespace far::preload
