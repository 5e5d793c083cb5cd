// The findings from traces: the lines of the program that miss, how they walk over memory, whose memory it is, and the
// hints that would help (Eden, sections 2 and 4: few lines cause nearly all misses).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trace/access_pattern.h"
#include "trace/flame.h"
#include "trace/symbolizer.h"
#include "trace/trace.h"

namespace far::trace {

// Code that is not the user's program. A miss belongs to the innermost frame outside of it, where a hint can be
// written.
struct analysis_options {
  // Beginnings of file names of modules.
  std::vector<std::string> library_modules = {"libc.so", "libc-",      "ld-linux",   "libstdc++", "libgcc_s",
                                              "libm.so", "libpthread", "libfarheap", "[vdso]"};
  // Parts of paths of source files. Lines of these are inlined from headers of the libraries.
  std::vector<std::string> library_sources = {"/include/c++/", "/usr/include/", "/include/far/"};
  // Beginnings of names of functions: the object heap, in programs that are linked to it statically.
  std::vector<std::string> library_functions = {"far::"};
  // Parts of paths of the headers whose functions are what the program called, as containers and far pointers are.
  std::vector<std::string> container_sources = {"/include/far/"};
  // Modules whose own lines mean nothing to the user when there is a Python line.
  std::vector<std::string> interpreter_modules = {"python3", "libpython"};
  double explained_share = 0.95;
};

struct allocation_site {
  std::string place;  // "FILE:LINE FUNCTION"
  std::uint64_t misses = 0;
};

struct line_report {
  std::string function;
  std::string file;  // empty when the module has no debug information
  unsigned line = 0;
  std::string module;
  std::string container;     // the function of a far container or pointer that the line called, or empty
  std::string python;        // the Python line that most misses came from, or empty
  std::uint64_t misses = 0;  // reads, writes and protections: those that something could have come before
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t protections = 0;
  std::uint64_t in_kernel = 0;
  std::uint64_t first_touches = 0;  // beside the misses
  unsigned threads = 0;
  double share = 0;             // of all misses
  double cumulative_share = 0;  // of this line and those before it
  pattern seen;
  std::string hint;                          // code to write; empty where a container does the prefetching
  bool has_hint = false;                     // one stands close by already, see analysis.cc
  std::vector<allocation_site> allocations;  // most misses first

  // "FILE:LINE", or the best substitute.
  [[nodiscard]] std::string place() const;
};

// The source line of instructions that missed: the innermost one, which may be inlined from a header of a library.
struct access_line {
  std::string file;
  unsigned line = 0;
  std::uint64_t misses = 0;  // recorded ones stand for those that were not
  pattern seen;
};

struct process_report {
  std::string file;
  std::uint32_t pid = 0;
  std::uint64_t misses = 0;  // records, of all kinds
  std::uint32_t sampled_one_in = 1;
  bool cut_short = false;
  bool ended = false;  // the end record is there
  std::uint64_t lost_records = 0;
};

// Misses and first touches by time. `counts[kind][bucket]`.
struct timeline {
  std::uint64_t bucket_ns = 1;
  std::array<std::vector<std::uint64_t>, miss_kinds> counts;
};

struct report {
  std::vector<process_report> processes;
  std::vector<std::string> empty_files;  // of processes that were killed at once, or had no room for a file
  std::vector<line_report> lines;        // that miss, most misses first
  std::size_t explaining = 0;            // so many of them are the fewest that explain explained_share
  double explained_share = 0;
  std::uint64_t misses = 0;             // recorded: those that no hint came before, without first touches
  std::uint64_t first_touches = 0;      // recorded
  std::uint64_t hinted_misses = 0;      // and first touches, that hints came before, as the end records say
  std::uint64_t misses_near_hints = 0;  // of `misses`, on lines with has_hint
  std::vector<access_line> accesses;    // by file and line; without first touches and system calls
  std::vector<std::string> units;       // the sources of the modules that these are in, in order
  timeline times;
  flame_node flame;                      // of the misses, and of the first touches below a frame of their own
  std::vector<hint_site> hint_sites;     // that were called; those that never helped first
  std::vector<missing_symbols> missing;  // modules of `lines` without debug information
};

// A site was called and never found anything to do.
[[nodiscard]] bool never_helps(const hint_site& site);

// Puts the traces of several processes together: add() each, then finish() once.
class analyzer {
 public:
  explicit analyzer(analysis_options options = {});
  ~analyzer();
  analyzer(const analyzer&) = delete;
  analyzer& operator=(const analyzer&) = delete;

  void add(const trace& one);
  [[nodiscard]] report finish();

 private:
  class state;
  std::unique_ptr<state> state_;
};

}  // namespace far::trace
