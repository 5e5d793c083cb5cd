#include "instructions.h"

#include <errno.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace far::bench {

instruction_counter::instruction_counter() {
  perf_event_attr wanted{};
  wanted.type = PERF_TYPE_HARDWARE;
  wanted.size = sizeof wanted;
  wanted.config = PERF_COUNT_HW_INSTRUCTIONS;
  wanted.exclude_kernel = 1;
  wanted.exclude_hv = 1;
  descriptor_ = static_cast<int>(syscall(SYS_perf_event_open, &wanted, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
  if (descriptor_ >= 0) return;
  why_not_ = fmt::format(
      "the kernel counts no instructions here ({}); virtual machines often have no counters, otherwise set "
      "kernel.perf_event_paranoid to 2 or less",
      strerror(errno));
}

instruction_counter::~instruction_counter() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::uint64_t instruction_counter::now() const {
  std::uint64_t count = 0;
  if (descriptor_ < 0 || read(descriptor_, &count, sizeof count) != sizeof count) return 0;
  return count;
}

}  // namespace far::bench
