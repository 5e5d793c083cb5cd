// System calls that bypass the C library's functions: through its syscall(), or by the program's own instructions.
// Calls that concern the runtime are served as if the function had been called.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace far::preload {

using call_arguments = std::array<long, 6>;

// Serves calls about memory, and reports the end of the process. Returns whether the call is done without the kernel;
// `*result` is then the kernel's result: -errno on failure. Preserves errno.
[[nodiscard]] bool serve_raw_call(long number, const call_arguments& arguments, long* result) noexcept;

// Whether the call makes this process another program.
[[nodiscard]] bool is_exec(long number) noexcept;

// A call that makes a child.
struct child_call {
  long number;
  call_arguments arguments;
  std::uint64_t flags = 0;  // CLONE_*
  std::uint64_t stack = 0;  // the highest address of the child's stack; 0: the parent's stack pointer
  std::uint64_t tls = 0;
  // Where the kernel stores numbers of the child, or 0.
  std::uint64_t parent_id = 0;   // its own, in the parent
  std::uint64_t child_id = 0;    // its own, in the child
  std::uint64_t descriptor = 0;  // of a descriptor for it
};

// Whether the kernel resets the child's signal handlers.
[[nodiscard]] bool resets_actions(const child_call& call) noexcept;

// Whether the call makes a child or a thread, and its request: nothing where that of clone3(2) is at a bad address, or
// has no possible length: then the kernel refuses the call.
[[nodiscard]] bool makes_child(long number) noexcept;
[[nodiscard]] std::optional<child_call> read_child_call(long number, const call_arguments& arguments) noexcept;

// Whether it is a child with memory of its own, which must be served like that of a fork.
[[nodiscard]] bool copies_memory(const child_call& call) noexcept;

// Makes such a child by `kernel`, which has the arguments and the result of the kernel's call. The child runs on the
// stack of its parent, regardless of the call. Returns twice, with the kernel's result. Fails with -EINVAL, and a
// message, for calls that cannot be served. Requires: not on a far stack.
[[nodiscard]] long make_copied_child(const child_call& call, long (*kernel)(long number, const call_arguments&));

}  // namespace far::preload
