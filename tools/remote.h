// `farheap resize` and `farheap stats`: talking to the runtime inside a program that runs.
#pragma once

#include <string>

namespace far::tools {

// Both return the exit code, after one line on standard error when it is not 0. 2: `pid` or `size` makes no sense.
[[nodiscard]] int resize(const std::string& pid, const std::string& size);
[[nodiscard]] int stats(const std::string& pid, bool json);

}  // namespace far::tools
