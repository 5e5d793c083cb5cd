#include "preload/memory_locks.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "base/units.h"
#include "platform/local_memory.h"
#include "platform/runtime_thread.h"
#include "preload/in_runtime.h"
#include "preload/kernel_calls.h"
#include "preload/memory_calls.h"
#include "preload/runtime.h"

namespace far::preload {
namespace {

constexpr unsigned on_fault = 1;  // MLOCK_ONFAULT
constexpr int known_flags = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;

std::atomic<int> future_flags{0};  // of the last mlockall that asked for MCL_FUTURE

// One of the kernel's mappings of this process.
struct kernel_mapping {
  std::uintptr_t first = 0;
  std::uintptr_t end = 0;
  bool accessible = false;
};

// Calls `visit(line)` for each line of a file of /proc about this process, with a zero behind it. The file is read
// piece by piece, and each read continues at an address, so mappings may change meanwhile. Returns 0 or an errno value.
template <typename Visit>
int for_each_line(const char* path, const Visit& visit) {
  const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0));
  if (file < 0) return errno;
  std::array<char, 8192> text;
  std::size_t held = 0;
  while (true) {
    const long got = syscall(SYS_read, file, text.data() + held, text.size() - held);
    if (got <= 0) break;
    held += static_cast<std::size_t>(got);
    std::size_t used = 0;
    while (void* const line_end = std::memchr(text.data() + used, '\n', held - used)) {
      *static_cast<char*>(line_end) = '\0';
      visit(text.data() + used);
      used = static_cast<std::size_t>(static_cast<const char*>(line_end) - text.data()) + 1;
    }
    held -= used;
    std::memmove(text.data(), text.data() + used, held);
  }
  syscall(SYS_close, file);
  return 0;
}

// The line of /proc/self/maps, or the first of several in smaps, about a mapping.
kernel_mapping mapping_in(const char* line) {
  kernel_mapping one;
  char* next = nullptr;
  one.first = std::strtoull(line, &next, 16);
  one.end = std::strtoull(next + 1, &next, 16);
  one.accessible = std::strncmp(next + 1, "---", 3) != 0;
  return one;
}

template <typename Visit>
int for_each_mapping(const Visit& visit) {
  return for_each_line("/proc/self/maps", [&](const char* line) { visit(mapping_in(line)); });
}

// Calls `visit(address, bytes)` for the parts of a mapping that are neither far nor the runtime's own.
template <typename Visit>
void visit_local_parts(const pager::pager& far, const kernel_mapping& mapping, const Visit& visit) {
  std::uintptr_t first = mapping.first;
  while (first < mapping.end) {
    const auto* const at = reinterpret_cast<const std::byte*>(first);
    bool is_far = false;
    const std::size_t part = far.uniform_bytes(at, mapping.end - first, &is_far);
    if (is_far) {
      // Mappings that the program has made over the far heap are the kernel's.
      const result<pager::pager::origin> owner =
          mapping.accessible ? far.origin_of(at, part) : result<pager::pager::origin>(error{"", EFAULT});
      if (owner && owner.value() == pager::pager::origin::foreign) visit(first, part);
      first += part;
      continue;
    }
    const platform::own_mapping own = platform::next_own_mapping(first);
    const std::uintptr_t end = std::clamp(own.first, first, first + part);
    if (end > first) visit(first, end - first);
    first = end == first + part ? end : std::min(own.end, mapping.end);
  }
}

bool limited() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> held{};
  if (syscall(SYS_capget, &header, held.data()) != 0) return true;
  return (held[CAP_IPC_LOCK / 32].effective >> (CAP_IPC_LOCK % 32) & 1) == 0;
}

// How much of a range is locked.
std::size_t locked_bytes(std::uintptr_t first, std::uintptr_t end) {
  kernel_mapping one;
  std::size_t sum = 0;
  static_cast<void>(for_each_line("/proc/self/smaps", [&](const char* line) {
    const bool begins = std::isxdigit(static_cast<unsigned char>(line[0])) != 0 && std::isupper(line[0]) == 0;
    if (begins) one = mapping_in(line);
    if (std::strncmp(line, "VmFlags:", 8) != 0 || std::strstr(line, " lo") == nullptr) return;
    const std::uintptr_t from = std::max(first, one.first);
    const std::uintptr_t to = std::min(end, one.end);
    if (from < to) sum += to - from;
  }));
  return sum;
}

// Only the kernel knows how much counts towards the limit, so this tries the call.
bool may_lock_more(std::size_t bytes) {
  void* const place = kernel_mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return true;  // for another reason, which the call itself will report
  const bool allowed = kernel_mlock2(place, bytes, on_fault) == 0;
  kernel_munmap(place, bytes);
  return allowed;
}

void say_that_far_memory_moves() {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  log_line(log_level::info,
           "mlockall locks the program's memory except for far memory, which stays within --local; mlock keeps a range "
           "of it here");
}

// Returns 0 or an errno value.
int lock_current(const pager::pager& far, unsigned how) {
  std::uint64_t wanted_bytes = 0;
  const auto count = [&](std::uintptr_t, std::size_t bytes) { wanted_bytes += bytes; };
  if (const int failure = for_each_mapping([&](const kernel_mapping& one) { visit_local_parts(far, one, count); })) {
    return failure;
  }
  rlimit limit{};
  if (limited() && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && wanted_bytes > limit.rlim_cur) return ENOMEM;
  return for_each_mapping([&](const kernel_mapping& one) {
    visit_local_parts(far, one, [&](std::uintptr_t first, std::size_t bytes) {
      // As in mlockall, memory that cannot be locked or filled is skipped.
      auto* const at = reinterpret_cast<void*>(first);
      const bool locked = kernel_mlock2(at, bytes, on_fault) == 0;
      if (locked && how == 0 && one.accessible) static_cast<void>(kernel_mlock2(at, bytes, 0));
    });
  });
}

}  // namespace

int lock_all(int flags) {
  const pager::pager* const far = platform::on_runtime_thread() ? nullptr : active_pager();
  // The kernel says what is wrong with the flags, or with the permission.
  const bool known = (flags & ~known_flags) == 0 && (flags & (MCL_CURRENT | MCL_FUTURE)) != 0;
  if (far == nullptr || !known) return kernel_mlockall(flags);
  if (kernel_mlock2(nullptr, 0, 0) != 0) return -1;
  say_that_far_memory_moves();
  future_flags.store((flags & MCL_FUTURE) != 0 ? flags : 0);
  if ((flags & MCL_CURRENT) == 0) return 0;
  const int failure = in_runtime([&] { return lock_current(*far, (flags & MCL_ONFAULT) != 0 ? on_fault : 0); });
  if (failure == 0) return 0;
  errno = failure;
  return -1;
}

int unlock_all() {
  pager::pager* const far = platform::on_runtime_thread() ? nullptr : active_pager();
  future_flags.store(0);
  const int failed = kernel_munlockall();
  if (far != nullptr) in_runtime([far] { far->unlock_all(); });
  return failed;
}

bool locks_future_mappings() noexcept {
  return future_flags.load(std::memory_order_relaxed) != 0;
}

bool lock_future_mapping(void* address, std::size_t bytes) {
  const int flags = future_flags.load(std::memory_order_relaxed);
  if (flags == 0) return true;
  const int saved_errno = errno;
  if (kernel_mlock2(address, bytes, on_fault) != 0) {
    errno = EAGAIN;
    return false;
  }
  if ((flags & MCL_ONFAULT) == 0) static_cast<void>(kernel_mlock2(address, bytes, 0));
  errno = saved_errno;
  return true;
}

bool may_lock(const void* address, std::size_t bytes) {
  rlimit limit{};
  if (!limited() || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  if (bytes <= limit.rlim_cur && may_lock_more(bytes)) return true;
  // Memory that is already locked counts once.
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  const std::size_t locked = locked_bytes(first, first + bytes);
  if (locked == 0 || bytes - locked > limit.rlim_cur) return false;
  return locked == bytes || may_lock_more(bytes - locked);
}

void forget_locks_in_child() noexcept {
  future_flags.store(0);
}

}  // namespace far::preload
