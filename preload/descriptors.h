// Calls that close or replace descriptors, where they pass by the C library's names.
#pragma once

#include <array>
#include <cstdio>

namespace far::preload {

// Keeps the runtime's descriptors from being closed: to the program they do not exist. Returns whether it was a call
// for which that mattered; then it has been made, and `*result` is as the kernel gives it.
[[nodiscard]] bool serve_descriptor_call(long number, const std::array<long, 6>& arguments, long* result) noexcept;

// Says whether standard error is for messages; does nothing for another descriptor. It is the program's for something
// else from when it closes it until it gives it again. The child of a vfork has descriptors of its own.
void note_standard_error(long descriptor, bool is_open) noexcept;

// The descriptor of a stream, or -1. errno is preserved.
[[nodiscard]] int number_of(FILE* stream) noexcept;

// Before a stream is closed, or opened again: one with a descriptor of ours has none, as if the program had closed
// that.
void spare_own_descriptor(FILE* stream) noexcept;

}  // namespace far::preload
