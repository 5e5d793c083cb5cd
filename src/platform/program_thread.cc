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
  inherited_signals() noexcept {
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &blocked_on_program_threads, &before_, sizeof before_);
  }
  ~inherited_signals() { restore_signals(before_); }
  inherited_signals(const inherited_signals&) = delete;
  inherited_signals& operator=(const inherited_signals&) = delete;

 private:
  std::uint64_t before_ = 0;
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
