#include "backend/descriptor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace far::backend {
namespace {

// High enough to be out of the way of shells (bash keeps 255 for itself), low enough that the kernel's table of
// descriptors, which grows to the highest number, stays small.
constexpr rlim_t usual_limit = 1024;
constexpr rlim_t reserved_numbers = 256;

}  // namespace

int move_descriptor_high(int descriptor) {
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
  errno = saved_errno;
  return descriptor;
}

}  // namespace far::backend
