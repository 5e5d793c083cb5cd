// `farheap resize`, `farheap add-server` and `farheap stats`: talking to the runtime inside a program that runs.
#pragma once

#include <string>

namespace far::tools {

// All return the exit code, after one line on standard error when it is not 0. 2: an argument makes no sense.
[[nodiscard]] int resize(const std::string& pid, const std::string& size);
[[nodiscard]] int add_server(const std::string& pid, const std::string& server);
[[nodiscard]] int stats(const std::string& pid, bool json);

}  // namespace far::tools
