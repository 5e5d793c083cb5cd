// The profile that farheap-clang reads (-ffar-profile, docs/compile.md#profiles): the source lines that miss.
#pragma once

#include <filesystem>
#include <string>

#include "trace/analysis.h"

namespace far::trace {

// The name of the file, in the directory of the traces.
inline constexpr const char* profile_file = "misses.profile";

// Lines of text:
//
//     farheap profile 1
//     misses COUNT             the sum of those below
//     source HASH PATH         of the program, or of lines below; HASH: XXH3 of its bytes in 16 hexadecimal digits,
//                              `changed` when it is newer than the trace, or `unknown` when it cannot be read
//     access LINE MISSES PATTERN    of the source above; PATTERN: unknown, forward, backward, stride or random
//
// `traced`: when the last of the traces was written.
[[nodiscard]] std::string profile_text(const report& analysis, std::filesystem::file_time_type traced);

}  // namespace far::trace
