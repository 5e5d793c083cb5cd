#include "platform/program_thread.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace far::platform {
namespace {

// While it lives, the calling thread blocks what those threads block, and one that is started inherits that. No
// signal_shield, which changes the arithmetic mode, too: they calculate as the thread that starts them.
class inherited_signals {
 public:
  // Not by SIG_BLOCK: where a filter of system calls refuses it, there would be nothing to restore.
  inherited_signals() noexcept
      : is_known_(syscall(SYS_rt_sigprocmask, SIG_SETMASK, nullptr, &before_, sizeof before_) == 0) {
    if (is_known_) restore_signals(before_ | blocked_on_program_threads);
  }
  ~inherited_signals() {
    if (is_known_) restore_signals(before_);
  }
  inherited_signals(const inherited_signals&) = delete;
  inherited_signals& operator=(const inherited_signals&) = delete;

 private:
  std::uint64_t before_ = 0;
  const bool is_known_;
};

}  // namespace

std::thread start_program_thread(std::string name, std::function<void()> body) {
  const inherited_signals until_started;
  return std::thread([name = std::move(name), body = std::move(body)] {
    restore_signals(blocked_on_program_threads);  // whatever else its creator blocks
    pthread_setname_np(pthread_self(), name.c_str());
    body();
  });
}

}  // namespace far::platform
