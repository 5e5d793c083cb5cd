#include "base/quiet_write.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace far {

ssize_t write_quietly(int file, const void* text, std::size_t bytes) noexcept {
  sigset_t ours;
  sigset_t before;
  sigset_t pending;
  sigemptyset(&ours);
  sigaddset(&ours, SIGPIPE);
  sigaddset(&ours, SIGXFSZ);
  // Not by SIG_BLOCK: programs restrict their system calls by filters that refuse it (Tor's). A mask that is not known
  // must not be changed.
  if (pthread_sigmask(SIG_SETMASK, nullptr, &before) != 0) return write(file, text, bytes);
  sigset_t blocked = before;
  for (const int number : {SIGPIPE, SIGXFSZ}) sigaddset(&blocked, number);
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  sigpending(&pending);
  const ssize_t written = write(file, text, bytes);
  const int failure = written < 0 ? errno : 0;
  // Those that were there before are the program's.
  for (const int number : {SIGPIPE, SIGXFSZ}) {
    if (sigismember(&pending, number) == 1) sigdelset(&ours, number);
  }
  const timespec at_once{};
  // A pipe may lose its reader after a part: then there is a signal and no error.
  if (written != static_cast<ssize_t>(bytes)) static_cast<void>(sigtimedwait(&ours, nullptr, &at_once));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure != 0) errno = failure;
  return written;
}

}  // namespace far
