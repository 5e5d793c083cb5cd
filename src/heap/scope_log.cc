#include "heap/scope_log.h"

#include <atomic>
#include <new>

namespace far::heap {
namespace {

// Periods that begin from now on wait for the scope. Those that have begun may be over: pages taken away under their
// numbers are not ready any more. If the scope dereferences one from here on, it takes it back first, as a scope does
// that opens now.
void stop_logging(owner_record& caller) noexcept {
  const std::uint64_t sequence = caller.sequence.load(std::memory_order_relaxed);
  caller.sequence.store(sequence & ~owner_record::logs, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace

void note_long_scope(owner_record& owner) noexcept {
  owner.scopes_to_log.store(scopes_logged_afterwards, std::memory_order_relaxed);
}

void log_page(owner_record& caller, std::uint64_t page) noexcept {
  if (!caller.is_logging()) return;
  hazard_log& used = *caller.used.load(std::memory_order_relaxed);
  if (used.held() >= most_logged_pages) return stop_logging(caller);
  try {
    used.hold(page);
  } catch (const std::bad_alloc&) {
    stop_logging(caller);
  }
}

}  // namespace far::heap

namespace far::detail {

std::uint64_t begin_logging(scope_record& record, std::uint64_t before) noexcept {
  auto& mine = static_cast<heap::owner_record&>(record);
  if ((before & scope_record::open) != 0) return before;
  if (mine.used.load(std::memory_order_relaxed) == nullptr) {
    heap::hazard_log* const fresh = new (std::nothrow) heap::hazard_log;
    if (fresh == nullptr) return before;
    mine.used.store(fresh, std::memory_order_release);
  }
  mine.log_began = std::chrono::steady_clock::now();
  mine.sequence.store(before | scope_record::open | scope_record::logs, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return before | scope_record::logs;
}

void end_logging(scope_record& record, std::uint64_t before) noexcept {
  auto& mine = static_cast<heap::owner_record&>(record);
  mine.used.load(std::memory_order_relaxed)->cut_back(0);
  mine.sequence.store((before & ~scope_record::logs) + scope_record::step, std::memory_order_release);
  if (std::chrono::steady_clock::now() - mine.log_began > heap::longest_short_scope) return heap::note_long_scope(mine);
  const std::uint32_t left = mine.scopes_to_log.load(std::memory_order_relaxed);
  if (left > 0) mine.scopes_to_log.store(left - 1, std::memory_order_relaxed);
}

}  // namespace far::detail
