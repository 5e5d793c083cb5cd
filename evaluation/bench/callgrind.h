// Counts instructions by running this program under valgrind's callgrind: exact, and the same on every machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "common/json.h"

namespace far::bench {

// Runs the child `told` (heap_bench.h) under callgrind. Returns the instructions of each of `markers`, with all that it
// called; 0 for a marker that was never called. A marker is a function that is neither inlined nor mangled (extern
// "C"), nor recursive. Fails with what to do where there is no valgrind, or the child cannot run under it.
[[nodiscard]] result<std::map<std::string, std::uint64_t>> count_instructions(const evaluation::json& assignment,
                                                                              const std::vector<std::string>& markers);

}  // namespace far::bench
