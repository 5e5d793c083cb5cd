// The tree of a flame graph: stacks with a common root put together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace far::trace {

struct flame_frame {
  std::string name;   // function
  std::string place;  // "FILE:LINE", or empty
};

struct flame_node {
  std::uint64_t misses = 0;                     // of the node and all below it
  std::uint64_t own = 0;                        // of stacks that end here
  std::map<std::string, std::uint64_t> places;  // where in the function -> misses
  std::map<std::string, std::unique_ptr<flame_node>> callees;
};

// `stack`: root first.
void add_stack(flame_node& root, const std::vector<flame_frame>& stack, std::uint64_t misses);

// One line a stack, root first: "main;load;parse 12". Semicolons and line ends in names are replaced.
[[nodiscard]] std::string folded_stacks(const flame_node& root);

}  // namespace far::trace
