// Finds the file that was mapped at an address, from the text of one or more /proc/PID/maps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace far::trace {

// All mappings of one file that stand in a row: an executable or a library, as a rule.
struct module_range {
  std::uint64_t first = 0;  // where its offset 0 is
  std::uint64_t end = 0;
  std::string path;  // as in the maps, without " (deleted)"
  bool deleted = false;
};

// The modules with code in them, by address. `texts`: oldest first. The last one counts; earlier ones serve for
// addresses that it does not mention (libraries that were unloaded). Malformed lines are left out.
[[nodiscard]] std::vector<module_range> parse_maps(const std::vector<std::string>& texts);

// The one that holds the address, or null. Requires the order that parse_maps makes.
[[nodiscard]] const module_range* find_module(const std::vector<module_range>& modules, std::uint64_t address);

}  // namespace far::trace
