// Error messages of the command line: one line, then an exit code.
#pragma once

#include <cstdio>
#include <string>

#include "base/result.h"

namespace far::tools {

// Prints "farheap: error: MESSAGE" on standard error, as one line whatever the message holds; returns `exit_code`.
inline int fail(int exit_code, std::string message) {
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::fprintf(stderr, "farheap: error: %s\n", message.c_str());
  return exit_code;
}

}  // namespace far::tools
