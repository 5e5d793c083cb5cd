// A trace in memory: the records of a file in the format of format.h, in the file's order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/format.h"

namespace far::trace {

struct python_frame {
  std::string file;
  unsigned line = 0;
  std::string function;
};

struct hint_site {
  std::string file;
  unsigned line = 0;
  std::uint64_t calls = 0;   // that reached the runtime
  std::uint64_t misses = 0;  // of them, those that found something to do
};

struct trace {
  std::string file;
  file_header header{};
  std::unordered_map<std::uint32_t, std::vector<std::uint64_t>> stacks;        // by number, innermost first
  std::unordered_map<std::uint32_t, std::vector<python_frame>> python_stacks;  // by number, innermost first
  std::vector<miss_record> misses;
  std::vector<allocation_record> allocations;
  std::vector<release_record> releases;
  std::vector<std::string> maps;  // texts of /proc/PID/maps, oldest first
  std::vector<hint_site> hint_sites;
  std::optional<end_record> end;  // not there when the program died
  bool cut_short = false;         // the last record was not whole
};

}  // namespace far::trace
