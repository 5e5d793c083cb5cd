// A part of `farheap-bench offload`: how fast a core answers for the pages that it holds.
#pragma once

#include "report.h"

namespace far::bench {

// Adds a sample of each row, in CPU time, so that other programs disturb little.
void measure_answers_of_a_core(report& figures);

// Compares the medians with the bandwidth of the memory.
void aim_answers_of_a_core(report& figures);

}  // namespace far::bench
