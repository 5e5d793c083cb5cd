// The features of the running kernel that this process may use. Each call is tried once; version numbers do not tell,
// because distributions backport and containers forbid.
//
// FARHEAP_DISABLE=NAME,NAME,... in the environment makes named features look absent, so that every fallback can be
// tested on a kernel that has them all. The names are those of known_features().
#pragma once

#include <span>

namespace far::platform {

// A flag is true when the call was tried and worked.
struct kernel_features {
  bool userfaultfd = false;                 // a descriptor can be opened
  bool userfaultfd_kernel_faults = false;   // ... and it also sees the faults that system calls take
  bool userfaultfd_through_device = false;  // ... because /dev/userfaultfd may be opened, not by the system call
  bool sigbus = false;                      // UFFD_FEATURE_SIGBUS: a miss is a signal to the missing thread
  bool exact_address = false;               // UFFD_FEATURE_EXACT_ADDRESS
  bool thread_id = false;                   // UFFD_FEATURE_THREAD_ID
  bool move = false;                        // UFFDIO_MOVE: frames change place without a copy
  bool write_protect = false;               // UFFDIO_WRITEPROTECT
  bool first_writes = false;                // ... and pages that came protected report their first write, all of them
  bool vectored_discard = false;            // process_madvise(MADV_DONTNEED) on this very process
  bool pagemap = false;                     // /proc/self/pagemap
  bool membarrier = false;                  // MEMBARRIER_CMD_PRIVATE_EXPEDITED
  bool io_uring = false;                    // io_uring_setup(2)
  bool syscall_user_dispatch = false;       // PR_SET_SYSCALL_USER_DISPATCH: system calls can be inspected first

  // Why userfaultfd is false: the errno of the last way tried (ENOSYS: not built into the kernel; EPERM or EACCES: not
  // permitted). 0 when userfaultfd is true.
  int userfaultfd_error_code = 0;
};

// One line of `farheap doctor`.
struct feature_description {
  const char* name;                // in FARHEAP_DISABLE and in messages
  bool kernel_features::* member;  // the flag
  const char* use;                 // what Farheap uses it for
  const char* fallback;            // the way without it; nullptr when `farheap run` cannot work without it
  const char* enable;              // how to get it
};

// Every feature that can be missing, in the order of kernel_features.
[[nodiscard]] std::span<const feature_description> known_features() noexcept;

// The features of this kernel, without those that FARHEAP_DISABLE names. Tries each call the first time, then answers
// from memory. Thread-safe; never allocates; leaves no descriptor and no mapping behind. Not safe inside a signal
// handler.
[[nodiscard]] const kernel_features& probe_kernel() noexcept;

// The same without memory: tries everything now, and takes `disabled` in place of FARHEAP_DISABLE (nullptr: nothing).
// For tests and for probe_kernel().
[[nodiscard]] kernel_features probe_kernel_now(const char* disabled) noexcept;

// Opens a userfaultfd in the widest way that `features` allows (any fault; else only those of user mode), close-on-exec
// and non-blocking, with the UFFDIO_API handshake still to be made. Returns the descriptor, or -errno.
[[nodiscard]] int open_userfaultfd(const kernel_features& features) noexcept;

// Keeps /dev/userfaultfd open from now on, where it is there and may be opened, so that open_userfaultfd() works also
// once this process has changed its user or its root directory.
void keep_userfaultfd_device() noexcept;

// Whether a file in `directory` can be written with O_DIRECT. Leaves nothing behind. Returns 1, 0, or -errno when no
// file can be made there at all.
[[nodiscard]] int direct_io_works(const char* directory) noexcept;

}  // namespace far::platform
