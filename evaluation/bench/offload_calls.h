// The part of `farheap-bench offload` about calls that have nothing to do: how long a program waits for one, one at a
// time, over the loopback interface.
#pragma once

#include "report.h"

namespace far::bench {

// Adds "p50_ns" and "p99_ns" of one run: of calls of a device of examples/plugins/sorted.cc, which is a process of its
// own, and of calls that the server answers itself. Where there is no such plugin, the report says so.
void measure_empty_calls(report& figures);

void aim_empty_calls(report& figures);

}  // namespace far::bench
