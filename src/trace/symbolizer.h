// From addresses to functions and source lines, after the program has ended: by the maps in its trace and by the DWARF
// of its executable and libraries on this machine (elfutils' libdw). Nothing is asked of the network.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace far::trace {

struct frame {
  std::string function;  // demangled; empty when unknown
  std::string file;      // source, as the compiler named it; empty when unknown
  unsigned line = 0;
  std::string module;        // path of the executable or library; empty when the address is in none
  std::uint64_t offset = 0;  // of the address, in the module
  bool inlined = false;      // into the next frame of the list
};

// A module whose addresses cannot be given source lines, and what to do about it.
struct missing_symbols {
  std::string module;
  std::string advice;
  std::uint64_t lookups = 0;
};

class symbolizer {
 public:
  // `maps`: as in a trace, oldest first.
  explicit symbolizer(const std::vector<std::string>& maps);
  ~symbolizer();
  symbolizer(const symbolizer&) = delete;
  symbolizer& operator=(const symbolizer&) = delete;

  // Innermost first, at least one frame: the function at the address, preceded by what was inlined there. A return
  // address stands behind its call, perhaps on another line or in another function, so the byte before it is looked up.
  [[nodiscard]] const std::vector<frame>& at(std::uint64_t address, bool is_return_address);

  // The source files that the module was compiled from, as far as its debug information tells.
  [[nodiscard]] std::vector<std::string> units_of(const std::string& module) const;

  // Modules that were looked into and had no debug information, most lookups first.
  [[nodiscard]] std::vector<missing_symbols> missing() const;

 private:
  class modules;  // keeps libdw's headers out of this one
  std::unique_ptr<modules> modules_;
};

}  // namespace far::trace
