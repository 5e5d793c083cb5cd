// The call stack of a thread that stands still, from the tables that compilers write for exceptions (.eh_frame; DWARF
// 5, section 6.4). For signal handlers: takes no lock, allocates nothing, and reads stacks by checked_memory only.
//
// Code without such tables is passed by its frame pointer where it keeps one; else the stack ends there.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace far::trace {

inline constexpr std::size_t unwound_registers = 17;  // by their DWARF numbers; the last is the address of the code

struct machine_state {
  std::array<std::uint64_t, unwound_registers> registers{};
};

// The state of the code that a signal interrupted.
[[nodiscard]] machine_state interrupted_state(const ucontext_t& context) noexcept;

// The state of the calling function, whose frame must still exist when it is used.
[[nodiscard, gnu::always_inline]] inline machine_state current_state() noexcept {
  machine_state state;
#if defined(__x86_64__)
  std::uint64_t* const into = state.registers.data();
  asm volatile(
      "movq %%rbx, 24(%0)\n\t"
      "movq %%rbp, 48(%0)\n\t"
      "movq %%rsp, 56(%0)\n\t"
      "movq %%r12, 96(%0)\n\t"
      "movq %%r13, 104(%0)\n\t"
      "movq %%r14, 112(%0)\n\t"
      "movq %%r15, 120(%0)\n\t"
      "leaq 0(%%rip), %%rax\n\t"
      "movq %%rax, 128(%0)"
      :
      : "r"(into)
      : "rax", "memory");
#endif
  return state;
}

// Writes the addresses of the stack, innermost first: the instruction of `from`, then return addresses. Returns how
// many.
[[nodiscard]] std::size_t unwind(machine_state from, std::span<std::uint64_t> addresses) noexcept;

}  // namespace far::trace
