// The list of what `farheap-bench primitives` measures.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel_stage.h"

namespace far::bench {

struct primitive {
  std::string group;
  std::string name;
  std::function<double(kernel_stage&)> measure;  // one sample: nanoseconds a page
  bool beside_neighbour = true;                  // also measured while another thread computes
};

// The replacement that the engine uses. The others are compared with it.
inline constexpr const char* chosen_replacement = "chosen: COPY in; drop clean, MOVE dirty";

// Whole replacements: a page comes in, is accessed, and leaves, by several ways.
void add_replacements(std::vector<primitive>& list);

// Hashing, and the replacements that need it. Returns nullptr, or why they cannot be measured in this build.
[[nodiscard]] const char* add_hashing(std::vector<primitive>& list);

}  // namespace far::bench
