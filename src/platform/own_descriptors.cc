#include "platform/own_descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

namespace far::platform {
namespace {

// High enough to be out of the way of shells (bash keeps 255 for itself), low enough that the kernel's table of
// descriptors, which grows to the highest number, stays small.
constexpr rlim_t usual_limit = 1024;
constexpr rlim_t reserved_numbers = 256;

std::array<std::atomic<bool>, usual_limit> owned{};

bool can_be_noted(int descriptor) {
  return descriptor >= 0 && descriptor < static_cast<int>(owned.size());
}

}  // namespace

int own_descriptor(int descriptor) {
  if (descriptor < 0) return descriptor;
  const int saved_errno = errno;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > 2 * reserved_numbers) {
    const rlim_t lowest = std::min(limit.rlim_cur, usual_limit) - reserved_numbers;
    const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, static_cast<int>(lowest));
    if (moved >= 0) {
      close(descriptor);
      descriptor = moved;
    }
  }
  keep_own_descriptor(descriptor);
  errno = saved_errno;
  return descriptor;
}

void keep_own_descriptor(int descriptor) noexcept {
  if (can_be_noted(descriptor)) owned[static_cast<std::size_t>(descriptor)].store(true);
}

bool is_own_descriptor(int descriptor) noexcept {
  return can_be_noted(descriptor) && owned[static_cast<std::size_t>(descriptor)].load(std::memory_order_relaxed);
}

void disown_descriptor(int descriptor) noexcept {
  if (can_be_noted(descriptor)) owned[static_cast<std::size_t>(descriptor)].store(false);
}

void close_own_descriptor(int descriptor) noexcept {
  if (descriptor < 0) return;
  disown_descriptor(descriptor);
  close(descriptor);
}

}  // namespace far::platform
