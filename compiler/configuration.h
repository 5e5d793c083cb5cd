// Configuration files: options that clang reads before those of its command line.
#pragma once

#include <string>
#include <vector>

namespace far::compiler {

// The words as clang understands them: those of configuration files in front, of the ones that it finds by itself and
// then of those that --config names. The words themselves if there are none. `mode`: --driver-mode=, which decides what
// these files are called.
[[nodiscard]] std::vector<std::string> with_configuration(const std::string& clang, const std::string& mode,
                                                          const std::vector<std::string>& words);

}  // namespace far::compiler
