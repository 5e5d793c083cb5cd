// `farheap report`: makes the reports of a traced run again.
#pragma once

#include <string>

namespace far::tools {

// Reads DIR/misses-PID.trace, writes summary.txt, stacks.folded and report.html there, and prints the summary; with
// `json` prints what was found as JSON, and writes nothing. Returns the exit code, after one line on standard error
// when it is not 0.
[[nodiscard]] int trace_report(const std::string& dir, bool json);

}  // namespace far::tools
