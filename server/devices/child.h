// The process of one device: farheapd again, with arguments of its own. It reads requests from its standard input, a
// socket, answers each, and ends when the server closes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace far::server {

// Written by the server, read by the process.
struct device_process_arguments {
  std::string file;
  std::string options;           // for the device: what it receives first, because any user may read arguments
  std::uint64_t room_bytes = 0;  // that it may take beyond what an empty process has
  std::size_t window_bytes = 0;  // of the file that is its descriptor `window_descriptor`; 0: there is none

  [[nodiscard]] std::vector<std::string> to_arguments() const;
};

inline constexpr int window_descriptor = 3;

// The exit code of such a process, if these are its arguments: all but the program's name. Call it before anything
// else.
[[nodiscard]] std::optional<int> run_as_device(const std::vector<std::string>& arguments);

}  // namespace far::server
