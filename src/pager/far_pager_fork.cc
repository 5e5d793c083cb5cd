// The pager around fork(2). See docs/decisions/0019-fork-that-lasts.md.
#include <unistd.h>

#include <cstdlib>

#include "base/log.h"
#include "pager/far_pager.h"
#include "platform/local_memory.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"
#include "platform/thread_identity.h"

namespace far::pager {

void far_pager::prepare_fork() {
  // A signal handler of the program that touched far memory now would wait for locks that its own thread holds.
  const std::uint64_t signals = platform::block_signals();
  gate_.close();
  // From here on no other thread forks.
  signals_before_fork_ = signals;
  addresses_.lock();
  engine_->fork().lock();
  platform::lock_local_memory_for_fork();
}

void far_pager::after_fork_in_parent() {
  const std::uint64_t signals = signals_before_fork_;  // the next one's, once the gate is open
  platform::unlock_local_memory_after_fork();
  engine_->fork().unlock();
  addresses_.unlock();
  gate_.open();
  platform::restore_signals(signals);
}

// The child has one thread, this one, and a copy of everything, but no userfaultfd, no threads of the runtime and no
// transfers: those stayed with the parent.
void far_pager::after_fork_in_child(std::span<const std::span<const std::byte>> pinned) {
  platform::unlock_local_memory_after_fork();
  platform::forget_expected_followers();
  addresses_.unlock();
  gate_.open_in_child();
  const auto stop = [](const char* what) {
    log_line(
        log_level::error,
        "a child of fork cannot go on with its far memory (%s) and is stopped; use vfork or posix_spawn, or exec at "
        "once",
        what);
    _exit(EXIT_FAILURE);
  };
  const platform::kernel_features& features = platform::probe_kernel();
  // What was the parent's is closed first: the program may have left no other descriptors.
  engine_->fork().close_transfers_in_child();
  if (fault_thread_ != nullptr) fault_thread_->close_in_child();
  const result<void> reopened = faults_.reopen_in_child(features, chosen_.mode == fault_mode::in_line);
  if (!reopened) return stop(reopened.error().message.c_str());
  space_.reopen_after_fork();
  std::vector<page_range, platform::local_allocator<page_range>> pinned_pages;
  for (const std::span<const std::byte> each : pinned) pinned_pages.push_back(pages_in(each.data(), each.size()));
  const result<void> resumed = engine_->fork().resume_in_child(pinned_pages);
  if (!resumed) return stop(resumed.error().message.c_str());
  // The threads of the old objects are not in this process; there is nothing to join or destroy.
  static_cast<void>(reclaimer_.release());
  reclaimer_ = std::make_unique<reclaimer>(*engine_, *this, chosen_.child_settled);
  reclaimer_->start();
  if (chosen_.mode == fault_mode::thread) {
    static_cast<void>(fault_thread_.release());
    const result<void> started = start_fault_thread();
    if (!started) stop(started.error().message.c_str());
  }
  settle_parts_in_child();
  platform::restore_signals(signals_before_fork_);
}

}  // namespace far::pager
