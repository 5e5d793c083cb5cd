#include "preload/waiting_masks.h"

#include <sys/syscall.h>

#include <optional>

#include "preload/program_memory.h"
#include "preload/signals.h"

namespace far::preload {
namespace {

// The argument of pselect6(2) for its mask.
struct mask_and_size {
  long mask;
  long bytes;
};

// What is at a pointer of the program; nothing where it is null or bad, which the kernel will say.
template <typename Value>
std::optional<Value> given_at(long argument) {
  return argument != 0 ? load(reinterpret_cast<const Value*>(argument)) : std::nullopt;
}

// The signal mask that a call waits with.
std::optional<kernel_mask> waiting_mask(long number, const std::array<long, 6>& arguments) {
  switch (number) {
    case SYS_rt_sigsuspend: return given_at<kernel_mask>(arguments[0]);
    case SYS_ppoll: return given_at<kernel_mask>(arguments[3]);
    case SYS_epoll_pwait:
    case 441 /* epoll_pwait2 */: return given_at<kernel_mask>(arguments[4]);
    case SYS_pselect6: {
      const auto given = given_at<mask_and_size>(arguments[5]);
      return given ? given_at<kernel_mask>(given->mask) : std::nullopt;
    }
    default: return std::nullopt;
  }
}

}  // namespace

bool blocks_ours(long number, const std::array<long, 6>& arguments) noexcept {
  const std::optional<kernel_mask> mask = waiting_mask(number, arguments);
  return mask && without_ours(*mask) != *mask;
}

void replace_mask(long number, std::array<long, 6>& arguments, long* scratch) noexcept {
  const std::optional<kernel_mask> mask = waiting_mask(number, arguments);
  if (!mask || without_ours(*mask) == *mask) return;
  scratch[0] = static_cast<long>(without_ours(*mask));
  const long copy = reinterpret_cast<long>(scratch);
  if (number == SYS_rt_sigsuspend) arguments[0] = copy;
  if (number == SYS_ppoll) arguments[3] = copy;
  if (number == SYS_epoll_pwait || number == 441) arguments[4] = copy;
  if (number != SYS_pselect6) return;
  scratch[1] = copy;
  scratch[2] = given_at<mask_and_size>(arguments[5])->bytes;
  arguments[5] = reinterpret_cast<long>(scratch + 1);
}

}  // namespace far::preload
