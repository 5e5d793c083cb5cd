// The pager around fork(2). See docs/decisions/0004-fork.md.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/check.h"
#include "base/log.h"
#include "pager/far_pager.h"
#include "pager/runtime_thread.h"
#include "platform/own_descriptors.h"
#include "platform/signal_shield.h"

namespace far::pager {

void far_pager::prepare_fork() {
  // A signal handler of the program that touched far memory now would wait for locks that its own thread holds.
  signals_before_fork_ = platform::block_signals();
  fork_pipe_ = {-1, -1};
  // Before anything else: a slot freed from here on may be one that the child needs.
  engine_->freeze_slots();
  if (pipe2(fork_pipe_.data(), O_CLOEXEC) != 0) {
    log_line(log_level::warning, "cannot watch a child process (%s); the far tier keeps what it frees from now on",
             std::strerror(errno));
  }
  children_lock_.lock();
  ++reading_children_;
  far_->keep_in_place(true);
  addresses_.lock();
  engine_->lock_for_fork();
}

void far_pager::after_fork_in_parent() {
  engine_->unlock_after_fork();
  addresses_.unlock();
  if (fork_pipe_[0] >= 0) {
    close(fork_pipe_[1]);
    children_.push_back(platform::own_descriptor(fork_pipe_[0]));
  }
  children_lock_.unlock();
  platform::restore_signals(signals_before_fork_);
}

void far_pager::release_slots_of_ended_children() {
  const platform::signal_shield shield;
  const std::lock_guard guard(children_lock_);
  std::erase_if(children_, [this](int child) {
    char nothing = 0;
    fcntl(child, F_SETFL, O_NONBLOCK);
    // The end of the pipe is reached when every process that held its other end has ended or called exec.
    if (read(child, &nothing, 1) != 0) return false;
    close(child);
    engine_->thaw_slots();
    if (--reading_children_ == 0) far_->keep_in_place(false);
    return true;
  });
}

// The child has one thread, this one, and a copy of everything, but no userfaultfd, no threads of the runtime and no
// transfers: those stayed with the parent.
void far_pager::after_fork_in_child() {
  addresses_.unlock();
  children_lock_.unlock();
  for (const int other : children_) close(other);
  children_.clear();
  if (fork_pipe_[0] >= 0) close(fork_pipe_[0]);
  // The write end stays open, and tells the parent that we live.
  static_cast<void>(platform::own_descriptor(fork_pipe_[1]));
  const auto stop = [](const char* what) {
    log_line(
        log_level::error,
        "a child of fork cannot go on with its far memory (%s) and is stopped; use vfork or posix_spawn, or exec at "
        "once",
        what);
    _exit(EXIT_FAILURE);
  };
  const platform::kernel_features& features = platform::probe_kernel();
  result<platform::userfaultfd> reopened = platform::userfaultfd::open(features, chosen_.mode == fault_mode::in_line);
  if (!reopened) return stop(reopened.error().message.c_str());
  faults_.replace_by(std::move(reopened).value());
  space_.reopen_after_fork();
  const result<void> resumed = engine_->resume_in_child();
  if (!resumed) return stop(resumed.error().message.c_str());
  // The threads of the old objects are not in this process; there is nothing to join or destroy.
  static_cast<void>(reclaimer_.release());
  reclaimer_ = std::make_unique<reclaimer>(*engine_, waiting_ != nullptr);
  if (chosen_.mode == fault_mode::thread) {
    static_cast<void>(fault_thread_.release());
    const result<void> started = start_fault_thread();
    if (!started) stop(started.error().message.c_str());
  }
  platform::restore_signals(signals_before_fork_);
}

}  // namespace far::pager
