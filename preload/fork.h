// fork(2) under the run door. A child sees every byte as it was: what was remote at the fork it reads from the slots
// that the parent had then, which the parent keeps untouched until the child has ended or called exec. The child itself
// evicts nothing. See docs/decisions/0004-fork.md.
#pragma once

#include "pager/pager.h"

namespace far::preload {

// From now on forks of this process keep `pager` right on both sides.
void serve_forks(pager::pager& pager) noexcept;

// Parent: lets go of what is kept for children that are gone. Called now and then.
void release_slots_of_ended_children() noexcept;

}  // namespace far::preload
