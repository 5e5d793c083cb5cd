// What a fiber, or an OS thread outside fibers, publishes about its scopes (docs/heap.md).
#pragma once

#include <atomic>
#include <cstdint>

#include "far/detail/api.h"

namespace far::detail {

// Grows whenever the outermost scope opens or ends: odd while one is open. Changed by its owner alone, with plain
// stores; the runtime reads it after a process-wide fence (heap/grace_periods.h).
struct scope_record {
  std::atomic<std::uint64_t> sequence{0};

  [[nodiscard]] bool is_open() const noexcept { return sequence.load(std::memory_order_relaxed) % 2 != 0; }
};

// The calling fiber's record, or the calling thread's. Stays the same on one fiber.
[[nodiscard]] FAR_API scope_record& current_scope_record() noexcept;

// That record, or nullptr when there is none yet. Kept by the fibers' workers. The model makes each read one
// instruction through the thread's segment register. By the other models a shared library calls for the variable's
// address, and the compiler may keep that while the fiber goes on on another thread.
FAR_API __attribute__((tls_model("initial-exec"))) extern constinit thread_local scope_record* scope_record_here;

#if defined(__x86_64__)
// Thread-local variables are read through a segment register, so no address of the wrong thread's can be left over from
// before the fiber changed workers.
[[nodiscard]] inline scope_record& scope_record_now() noexcept {
  scope_record* const known = scope_record_here;
  return known != nullptr ? *known : current_scope_record();
}
#else
[[nodiscard]] inline scope_record& scope_record_now() noexcept {
  return current_scope_record();
}
#endif

// Keeps a scope open while it lives. An inner one changes nothing.
class open_scope {
 public:
  open_scope() noexcept : record_(scope_record_now()), before_(record_.sequence.load(std::memory_order_relaxed)) {
    record_.sequence.store(before_ | 1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~open_scope() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    record_.sequence.store(before_ + (before_ % 2 == 0 ? 2 : 0), std::memory_order_release);
  }
  open_scope(const open_scope&) = delete;
  open_scope& operator=(const open_scope&) = delete;

  [[nodiscard]] scope_record& record() const noexcept { return record_; }

 private:
  scope_record& record_;
  std::uint64_t before_;
};

}  // namespace far::detail
