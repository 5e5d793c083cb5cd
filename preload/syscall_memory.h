// Brings in the far memory that a system call touches in fault_mode::in_line. The kernel cannot resolve misses in that
// mode: it would fail with EFAULT, so everything it may touch is made resident and pinned before the call.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "pager/pager.h"

namespace far::preload {

// Neighbouring pages that a call holds.
struct pinned_run {
  std::byte* first;
  std::uint64_t pages;
};

// A system call under way that holds pages. In local memory.
struct guarded_call {
  guarded_call* next;  // the one that it interrupted, on the same thread
  long number;
  std::uintptr_t stack;           // where the thread's stack ended
  std::array<long, 6> original;   // arguments, as the program gave them
  std::array<long, 6> given;      // the same for what is left of a long transfer
  std::array<long, 6> arguments;  // as the kernel gets them: maybe for a shorter transfer
  long transferred;               // bytes transferred by the parts before this one
  unsigned long left;             // bytes of the transfer after this part
  unsigned attempts;              // that ended with EFAULT
  iovec part;                     // stands for an iovec too long to be pinned as a whole
  msghdr message;                 // stands for one of which only a part is sent now
  std::size_t run_count;
  std::size_t run_capacity;
  pinned_run* runs;
  std::array<pinned_run, 6> few_runs;
};

// Whether memory that begins at one of these may be far. Says yes too often, never too seldom.
[[nodiscard]] bool any_may_be_far(const pager::pager& pager, const std::array<long, 6>& arguments) noexcept;

// The same for everything that a call touches, also by way of pointers in memory.
[[nodiscard]] bool may_touch_far(const pager::pager& pager, long number, const std::array<long, 6>& arguments) noexcept;

// Pins the memory that the call touches. The call becomes the thread's innermost one. Returns nullptr when it touches
// nothing far, unless `anyway` is set. Requires: an undispatched_section, and a section of the runtime.
[[nodiscard]] guarded_call* guard_call(pager::pager& pager, long number, const std::array<long, 6>& arguments,
                                       bool anyway, std::uintptr_t stack);

// process_vm_readv and process_vm_writev of this process's own far memory. Both sides may be far, and each part is
// limited to what may be pinned at a time. Returns whether it was such a call; then the call has been made. Requires:
// as guard_call.
[[nodiscard]] bool serve_own_transfer(pager::pager& pager, long number, const std::array<long, 6>& arguments,
                                      long* result);

// Whether it is one of these two, with whatever process. Then guard_call is to be called `anyway`: the other process
// may have far memory.
[[nodiscard]] bool is_process_transfer(long number) noexcept;

// Whether the calling thread has this call under way.
[[nodiscard]] bool is_under_way(const guarded_call* call) noexcept;

// Whether the call must be made again, with `call.arguments`: for the next part of a long transfer, or because the
// kernel touched more than the table says. Otherwise `*result` is the program's result. Requires: as guard_call.
[[nodiscard]] bool wants_another_part(pager::pager& pager, guarded_call& call, long* result);

// Unpins, and forgets the call.
void release_call(guarded_call& call);

// Releases the calling thread's innermost calls, which never returned, until `last` is the innermost.
void release_calls_until(const guarded_call* last);

// In the child of a fork: pages held by other threads are no longer held.
void forget_calls_of_other_threads() noexcept;

}  // namespace far::preload
