// The program that a user wants to run: finding it, and making sure that a preloaded library reaches it.
#pragma once

#include <string>

#include "base/result.h"

namespace far::tools {

// Exit codes, the shell's own.
inline constexpr int exit_failure = 1;
inline constexpr int exit_usage = 2;
inline constexpr int exit_not_executable = 126;
inline constexpr int exit_not_found = 127;

// The file that execvp(3) would run for `name`: searched in the directories of `search_path` (as in $PATH; nullptr: a
// default) unless it holds a '/'. The code of an error is the exit code to end with.
[[nodiscard]] result<std::string> find_program(const std::string& name, const char* search_path);

// Fails when LD_PRELOAD would have no effect on the file at `path`: statically linked, for another machine, set-uid or
// with capabilities that this user lacks, or a script (#!) whose interpreter is such a program. Fails too when the
// kernel cannot run it at all. The code of an error is the exit code to end with.
[[nodiscard]] result<void> check_preloadable(const std::string& path);

}  // namespace far::tools
