// The programs of `farheap-bench compiled`: plain sources of evaluation/apps, compiled anew by each of the compilers
// that are compared, and how each runs in given surroundings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace far::bench {

struct compiled_program {
  std::string name;
  std::vector<std::string> sources;    // in evaluation/apps
  std::vector<std::string> libraries;  // options of the linker
  std::vector<std::string> arguments;
  std::vector<std::string> few;        // arguments for so little data that every instruction can be counted; or none
  std::vector<std::string> load = {};  // of a server: the arguments of its client
  std::vector<std::string> door_options = {};  // another way to compile a program that is there without them, too
};

// With data of about so many bytes. `quick`: those that are compiled in a second, with fewer rounds.
[[nodiscard]] std::vector<compiled_program> compiled_programs(bool quick, std::uint64_t working_set_bytes);

enum class compiler { clang, door };

// Fails with what to install or build when one of the compilers, or what the programs need, is not there.
[[nodiscard]] result<void> find_compilers();

struct built_program {
  std::string path;
  double compile_ns = 0;  // CPU time of compiling and linking it
  double code_bytes = 0;  // of its sections that hold instructions
};

// Compiles it to FOLDER/NAME-clang or FOLDER/NAME-door, at -O3.
[[nodiscard]] result<built_program> build_program(const compiled_program& program, compiler by,
                                                  const std::string& folder);

// The instructions that the door links to every program, in bytes.
[[nodiscard]] result<double> support_code_bytes(const std::string& folder);

// The cost of a run.
struct compiled_outcome {
  double seconds = 0;  // of its work, without making its data
  double cpu_ns = 0;
  double peak_bytes = 0;
  std::string results;  // the same text for the same results
  double misses = -1;   // -1: unknown, because it ran without the runtime, or is a server
  double fetched_pages = -1;
};

inline constexpr std::uint64_t program_deadline_ns = 600'000'000'000;

// Runs what was built by `launcher`, words that stand before its command. `stats_file`: where the launcher leaves the
// runtime's statistics, or nothing.
[[nodiscard]] result<compiled_outcome> run_program(const compiled_program& program, const std::string& path,
                                                   const std::vector<std::string>& launcher,
                                                   const std::string& stats_file,
                                                   std::uint64_t deadline_ns = program_deadline_ns);

// All instructions of a run with `few` data and without a runtime, counted by valgrind. Fails with what to install.
[[nodiscard]] result<double> count_program_instructions(const compiled_program& program, const std::string& path,
                                                        const std::string& folder);

}  // namespace far::bench
