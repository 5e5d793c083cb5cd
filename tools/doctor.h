// `farheap doctor`: what this machine offers, what is done without the rest, and how to get it.
#pragma once

namespace far::tools {

// Prints the findings. Returns 0 when `farheap run` would work, 1 otherwise.
[[nodiscard]] int doctor(bool json);

}  // namespace far::tools
