// Runs a program to its end, with a deadline, and collects what it printed and what it cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace far::bench {

struct child_outcome {
  std::string output;        // of its standard output
  std::uint64_t cpu_ns = 0;  // user and system time of it and of the children it waited for
  std::uint64_t elapsed_ns = 0;
  std::uint64_t peak_bytes = 0;  // most memory that was resident, in the largest of these processes
};

// Requires: `arguments[0]` is a path. The child is killed at the deadline, when a signal asks this program to stop, and
// when this program dies. Fails when it cannot start, is killed, or exits with a status other than 0; the message tells
// the last line that it wrote to standard error.
[[nodiscard]] result<child_outcome> run_child(const std::vector<std::string>& arguments, std::uint64_t deadline_ns);

// The path of this program, and of another that was built with it: "farheap", "apps/psort".
[[nodiscard]] std::string own_path();
[[nodiscard]] std::string product(const std::string& name);
// The path of a program in one of the folders of PATH; empty when it is in none.
[[nodiscard]] std::string find_program(const std::string& name);

}  // namespace far::bench
