// Mirrors rights that the kernel keeps for each thread. A program with one thread believes that it changes those of its
// process. The runtime's threads must follow, or the C library finds at the next setuid(2) or setgroups(2) that its
// threads do not agree, and aborts.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace far::platform {

// A thread of the runtime is about to be started. It inherits the rights of the thread that starts it, and first calls
// follow_identity() with the result of this, which tells which calls those rights reflect at least: it may make a call
// that the calling thread makes meanwhile once more.
[[nodiscard]] std::uint64_t expect_follower() noexcept;
// It could not be started.
void expect_no_follower() noexcept;
// In the child of a fork: threads that were expected were the parent's.
void forget_expected_followers() noexcept;

// The calling thread is one of the runtime's: mirror_on_runtime_threads() reaches it from now on. Requires: it lets the
// C library's identity signal in (signal_shield.h), and touches no far memory.
void follow_identity(std::uint64_t inherited) noexcept;
// Before such a thread ends.
void unfollow_identity() noexcept;
// Waits until the threads that are expected follow, so that the kernel lists them: for some seconds at most.
void wait_for_followers() noexcept;
// Whether a thread of this process follows. Waits for those that are expected: the kernel may list them already.
[[nodiscard]] bool follows_identity(pid_t thread) noexcept;

// Makes a system call of at most five arguments on every thread that follows. Its arguments point to local memory.
// Returns when all have made it, or false after some seconds: a thread did not answer. Whether the call itself succeeds
// there does not matter to it.
[[nodiscard]] bool mirror_on_runtime_threads(long number, long first, long second, long third, long fourth,
                                             long fifth) noexcept;

}  // namespace far::platform
