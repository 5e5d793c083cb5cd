// The commands of `farheap` that need no more than a few arguments. Those that start programs are in run.h and trace.h.
//
// All return the exit code. When it is not 0, one line on standard error says why, except for `doctor`, which prints
// its findings. 2: an argument makes no sense.
#pragma once

#include <string>

namespace far::tools {

// `farheap resize`, `add-server` and `stats`: talk to the runtime inside a running program.
[[nodiscard]] int resize(const std::string& pid, const std::string& size);
[[nodiscard]] int add_server(const std::string& pid, const std::string& server);
[[nodiscard]] int remove_server(const std::string& pid, const std::string& server);
[[nodiscard]] int stats(const std::string& pid, bool json);

// `farheap report`: reads DIR/misses-PID.trace, writes summary.txt, stacks.folded and report.html there, and prints the
// summary. With `json` prints the findings as JSON and writes nothing.
[[nodiscard]] int trace_report(const std::string& dir, bool json);

// `farheap doctor`: reports what this machine supports, the fallbacks, and how to enable the rest. Returns 0 when
// `farheap run` would work, 1 otherwise.
[[nodiscard]] int doctor(bool json);

}  // namespace far::tools
