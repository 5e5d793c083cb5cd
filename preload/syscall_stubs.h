// The only code of the library whose system calls go straight to the kernel in fault_mode::in_line; every other system
// call of a program thread is first shown to the guard (syscall_guard.h). Written in assembler, x86-64 only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace far::preload {
struct own_action;
}

extern "C" {

#pragma GCC visibility push(hidden)

// The addresses between which system calls are not dispatched (PR_SET_SYSCALL_USER_DISPATCH).
extern const char far_stubs_begin[];
extern const char far_stubs_end[];

// What the threads of this process are armed with: the first address whose calls are not dispatched, and how many
// bytes.
extern std::uintptr_t far_undispatched[2];

// Where a dispatched thread continues with its system call: with all registers unchanged, and far_pushed_bytes more on
// its stack (struct pushed_call). The first does the call and returns to the program; the second puts back registers
// before that; the third does the call and reports to the guard, by a call from far_guarded_return, which ends it.
extern const char far_plain_call[];
extern const char far_masked_call[];
extern const char far_guarded_call[];
extern const char far_guarded_return[];

// In direct_call_stubs.cc: the same for a call that is first looked at there, with its return address below the red
// zone.
extern const char far_site_raw[];

// The handler that the kernel knows for those of relayed_handlers.cc. It continues as the program's on the moved frame,
// from which that returns as from any other.
//
// Another signal meanwhile would leave its frame on our stack. So all are blocked first, until far_relay_shut, and
// those that the handler's mask lets in come on the program's stack. Only the kernel knows that mask: it answers with
// it, into uc_link, which is unused. SIGSEGV stays as it is, since the program's stack may be at its end.
extern const char far_relay_signal[];
extern const char far_relay_shut[];

// The restorer of our own signal handlers, and its system call alone.
void far_signal_return();
extern const char far_signal_return_call[];

// A system call that is never dispatched: the kernel's result, -errno on failure.
long far_raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0);

// `call` is the number and five arguments of a clone, clone3 or vfork whose child starts on another stack. The child
// first sets `actions`, which may be null, arms itself with `selector`, if that is not null, and then takes all its
// registers from `context`, as if it returned from a signal handler. Returns in the parent only.
long far_raw_clone(const long* call, void* context, unsigned char* selector, const far::preload::own_action* actions);

// Unmaps the stack that it runs on and ends the calling thread.
[[noreturn]] void far_end_thread(void* stack, std::size_t bytes, long status);

#pragma GCC visibility pop

}  // extern "C"

namespace far::preload {

// The bytes that the guard pushes below the red zone of a dispatched thread's stack.
struct pushed_call {
  unsigned long return_address;
  void* guarded;    // struct guarded_call, far_guarded_call only
  long result;      // of the system call, far_guarded_call only
  long scratch[3];  // copies of arguments that were changed: a signal mask
  // The program's registers, which far_masked_call puts back.
  long kept_r10;
  long kept_r8;
  long kept_r9;
  long kept_rdi;
};
inline constexpr std::size_t red_zone_bytes = 128;
inline constexpr std::size_t far_pushed_bytes = 208;
static_assert(sizeof(pushed_call) + red_zone_bytes == far_pushed_bytes);

}  // namespace far::preload
