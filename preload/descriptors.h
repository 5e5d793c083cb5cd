// Calls that close or replace descriptors, where they pass by the C library's names.
#pragma once

#include <array>

namespace far::preload {

// Keeps the runtime's descriptors from being closed: to the program they do not exist. Returns whether it was a call
// for which that mattered; then it has been made, and `*result` is as the kernel gives it.
[[nodiscard]] bool serve_descriptor_call(long number, const std::array<long, 6>& arguments, long* result) noexcept;

}  // namespace far::preload
