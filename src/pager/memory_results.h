// What the memory calls of far_pager share: the kernel's protection, and errno values as results.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/result.h"
#include "base/units.h"

namespace far::pager {

// Straight to the kernel: the program's mprotect may be the preload library's own. Returns 0 or an errno value.
[[nodiscard]] inline int set_kernel_protection(std::byte* address, std::size_t bytes, int protection) {
  return syscall(SYS_mprotect, address, bytes, protection) == 0 ? 0 : errno;
}

[[nodiscard]] inline error failed(const char* call, int code) {
  const char* const advice = code == ENOMEM ? "; if it is for want of mappings, raise vm.max_map_count" : "";
  return {std::string(call) + " in the far heap fails (" + std::strerror(code) + ")" + advice, code};
}

[[nodiscard]] inline result<void> outcome(const char* call, int code) {
  return code == 0 ? result<void>() : result<void>(failed(call, code));
}

[[nodiscard]] inline error no_room(std::size_t bytes) {
  return {"the far heap has no " + format_size(bytes) + " of free addresses left", ENOMEM};
}

}  // namespace far::pager
