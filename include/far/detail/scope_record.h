// The record that a fiber, or an OS thread outside fibers, publishes of its scopes (docs/heap.md).
#pragma once

#include <atomic>
#include <cstdint>

#include "far/detail/api.h"

namespace far::detail {

// `sequence` says whether a scope is open, in the lowest bits, and grows whenever the outermost one ends. Changed by
// its owner alone, with plain stores; the runtime reads it after a process-wide fence (heap/grace_periods.h).
struct scope_record {
  static constexpr std::uint64_t open = 1;
  static constexpr std::uint64_t logs = 2;  // all that the open scope has dereferenced is in its log
  static constexpr std::uint64_t step = 4;

  std::atomic<std::uint64_t> sequence{0};
  // How many of the owner's next outermost scopes log the pages that they dereference: set by the runtime when a scope
  // has been open for long (heap/scope_log.cc).
  std::atomic<std::uint32_t> scopes_to_log{0};

  [[nodiscard]] bool is_open() const noexcept { return (sequence.load(std::memory_order_relaxed) & open) != 0; }
  // Whether a scope is open that logs.
  [[nodiscard]] bool is_logging() const noexcept { return (sequence.load(std::memory_order_relaxed) & logs) != 0; }
};

// For a scope that opens while scopes_to_log is not 0; `before` is the sequence that it found. Returns that sequence,
// with the bit `logs` set if the scope logs. Its dereferences then do not look at ready bytes.
[[nodiscard]] FAR_API std::uint64_t begin_logging(scope_record& record, std::uint64_t before) noexcept;
// For the end of an outermost scope that logged when it began. `before`: as begin_logging() returned it.
FAR_API void end_logging(scope_record& record, std::uint64_t before) noexcept;

// The calling fiber's record, or the calling thread's. Stays the same on one fiber. Throws std::bad_alloc when it is
// the first and there is no local memory for it; the log says so.
[[nodiscard]] FAR_API scope_record& current_scope_record();

// That record, or nullptr when there is none yet. Kept by the fibers' workers. The model makes each read one
// instruction through the thread's segment register. By the other models a shared library calls for the variable's
// address, and the compiler may keep that while the fiber goes on on another thread.
FAR_API __attribute__((tls_model("initial-exec"))) extern constinit thread_local scope_record* scope_record_here;

#if defined(__x86_64__)
// Thread-local variables are read through a segment register, so no address of the wrong thread's can be left over from
// before the fiber changed workers.
[[nodiscard]] inline scope_record& scope_record_now() {
  scope_record* const known = scope_record_here;
  return known != nullptr ? *known : current_scope_record();
}
#else
[[nodiscard]] inline scope_record& scope_record_now() {
  return current_scope_record();
}
#endif

// Keeps a scope open for its lifetime. An inner one changes nothing.
class open_scope {
 public:
  // Always inlined, for exceptions too: a scope whose address is passed on cannot live in registers.
  [[gnu::always_inline]] open_scope() : open_scope(scope_record_now()) {}
  [[gnu::always_inline]] ~open_scope() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if ((before_ & (scope_record::open | scope_record::logs)) == 0) [[likely]] {
      record_.sequence.store(before_ + scope_record::step, std::memory_order_release);
    } else if ((before_ & scope_record::open) == 0) {
      end_logging(record_, before_);
    }
  }
  open_scope(const open_scope&) = delete;
  open_scope& operator=(const open_scope&) = delete;

  [[nodiscard]] scope_record& record() const noexcept { return record_; }
  // Whether it logged when it began.
  [[nodiscard]] bool logs() const noexcept { return logs_; }

 private:
  struct begun {
    std::uint64_t before;
    bool logs;
  };
  // Members are set after the fence: those that others may see would be read again.
  [[gnu::always_inline]] explicit open_scope(scope_record& record) noexcept : open_scope(record, begin(record)) {}
  [[gnu::always_inline]] open_scope(scope_record& record, begun how) noexcept
      : record_(record), before_(how.before), logs_(how.logs) {}

  [[nodiscard, gnu::always_inline]] static begun begin(scope_record& record) noexcept {
    const std::uint64_t before = record.sequence.load(std::memory_order_relaxed);
    record.sequence.store(before | scope_record::open, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (record.scopes_to_log.load(std::memory_order_relaxed) == 0) [[likely]]
      return {before, false};
    // It is never 0 while a scope is open that logs, so inner ones come here, too.
    const std::uint64_t kept = begin_logging(record, before);
    return {kept, (kept & scope_record::logs) != 0};
  }

  scope_record& record_;
  std::uint64_t before_;  // the sequence; with the bit `logs`, too, if this scope logs
  bool logs_;
};

}  // namespace far::detail
