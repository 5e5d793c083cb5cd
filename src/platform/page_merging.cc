#include "platform/page_merging.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace far::platform {
namespace {

// As in linux/prctl.h, which older systems have without them.
constexpr int set_memory_merge = 67;
constexpr int get_memory_merge = 68;

std::atomic<bool> is_wanted{false};

}  // namespace

void end_page_merging() noexcept {
  if (syscall(SYS_prctl, get_memory_merge, 0, 0, 0, 0) != 1) return;
  is_wanted.store(true);
  syscall(SYS_prctl, set_memory_merge, 0, 0, 0, 0);
}

void want_page_merging(bool wants) noexcept {
  is_wanted.store(wants);
}

bool wants_page_merging() noexcept {
  return is_wanted.load();
}

}  // namespace far::platform
