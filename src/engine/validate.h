// The validators: every invariant of the design, recomputed from scratch. See residency.h for the states.
#pragma once

#include "engine/core.h"
#include "engine/transfer_queues.h"

namespace far::engine {

// Stops the process when an invariant is broken. Requires: no other call at the same time.
void validate(const core& shared, const transfer_queues& transfers);

}  // namespace far::engine
