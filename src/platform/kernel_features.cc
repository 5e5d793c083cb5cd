#include "platform/kernel_features.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/membarrier.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/log.h"
#include "base/units.h"
#include "platform/left_alone.h"
#include "platform/own_descriptors.h"
#include "platform/userfaultfd_abi.h"

namespace far::platform {
namespace {

// The probes run inside the preloaded library, where mmap is our own and malloc may be waiting for the answer:
// everything goes straight to the kernel, and nothing is allocated.
class scratch_pages {
 public:
  explicit scratch_pages(std::size_t pages) : bytes_(pages * page_bytes) {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | left_alone;
    const long address = syscall(SYS_mmap, nullptr, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (address != -1) address_ = reinterpret_cast<std::byte*>(address);
  }
  ~scratch_pages() {
    if (address_ != nullptr) syscall(SYS_munmap, address_, bytes_);
  }
  scratch_pages(const scratch_pages&) = delete;
  scratch_pages& operator=(const scratch_pages&) = delete;

  [[nodiscard]] bool ok() const { return address_ != nullptr; }
  [[nodiscard]] std::byte* page(std::size_t index) const { return address_ + index * page_bytes; }
  [[nodiscard]] std::uint64_t number(std::size_t index) const { return reinterpret_cast<std::uint64_t>(page(index)); }
  void fill(std::size_t index, int value) const {
    volatile std::byte* const bytes = page(index);
    for (std::size_t i = 0; i < page_bytes; ++i) bytes[i] = static_cast<std::byte>(value);
  }
  [[nodiscard]] bool holds(std::size_t index, int value) const {
    const volatile std::byte* const bytes = page(index);
    for (std::size_t i = 0; i < page_bytes; ++i) {
      if (bytes[i] != static_cast<std::byte>(value)) return false;
    }
    return true;
  }

 private:
  std::byte* address_ = nullptr;
  std::size_t bytes_;
};

class descriptor {
 public:
  explicit descriptor(int number) : number_(number) {}
  ~descriptor() {
    if (number_ >= 0) syscall(SYS_close, number_);
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;

  [[nodiscard]] bool ok() const { return number_ >= 0; }
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

constexpr std::array<feature_description, 14> descriptions{{
    {"userfaultfd", &kernel_features::userfaultfd, "notices accesses to memory that is not resident", nullptr,
     "run `sysctl vm.unprivileged_userfaultfd=1`, or run as root, or grant CAP_SYS_PTRACE, or allow access to "
     "/dev/userfaultfd"},
    {"userfaultfd_kernel_faults", &kernel_features::userfaultfd_kernel_faults,
     "system calls may be given memory that is not resident", "--fault-mode inline",
     "run `sysctl vm.unprivileged_userfaultfd=1`, or run as root, or grant CAP_SYS_PTRACE, or allow access to "
     "/dev/userfaultfd"},
    {"userfaultfd_through_device", &kernel_features::userfaultfd_through_device,
     "permission by /dev/userfaultfd where the system call is refused", "the userfaultfd system call",
     "Linux 6.1 or later and read and write access to /dev/userfaultfd"},
    {"sigbus", &kernel_features::sigbus, "--fault-mode inline", "--fault-mode thread", "Linux 4.14 or later"},
    {"exact_address", &kernel_features::exact_address, "misses name the byte, not only the page",
     "misses name the page", "Linux 5.18 or later"},
    {"thread_id", &kernel_features::thread_id, "prefetch follows each thread on its own",
     "one read-ahead state for all threads", "Linux 4.14 or later"},
    {"move", &kernel_features::move,
     "lifts dirty pages out without copying, and never under a device that writes to them",
     "write-protect, copy, drop; inline mode by default, which refuses io_uring, libaio and RDMA",
     "Linux 6.8 or later, built with CONFIG_USERFAULTFD"},
    {"write_protect", &kernel_features::write_protect, "pages are out of the program's reach while they are copied",
     "`move`", "Linux 5.7 or later"},
    {"first_writes", &kernel_features::first_writes, "clean pages are not written again",
     "eviction compares the hash of every page", "Linux 5.18 or later"},
    {"process_madvise", &kernel_features::vectored_discard, "drops many pages in one call",
     "one madvise call for each run of pages", "Linux 6.13 or later"},
    {"pagemap", &kernel_features::pagemap, "tells which pages hold frames",
     "mincore, and dirty pages leave by write-protect, copy, drop", "mount /proc in the container"},
    {"membarrier", &kernel_features::membarrier, "reads the threads' scopes without slowing them",
     "a fence in every scope", "Linux 4.14 or later, built with CONFIG_MEMBARRIER"},
    {"io_uring", &kernel_features::io_uring, "the file: far tier works in deep batches",
     "a few threads make its transfers, eight at a time",
     "Linux 5.6 or later; `sysctl kernel.io_uring_disabled=0`; a container may forbid it (seccomp profile)"},
    {"syscall_user_dispatch", &kernel_features::syscall_user_dispatch,
     "--fault-mode inline for unmodified programs; raw memory calls are noticed",
     "--fault-mode thread; memory calls that pass by the C library are not noticed", "Linux 5.11 or later on x86-64"},
}};

constexpr const char* userfaultfd_device = "/dev/userfaultfd";

int open_by_system_call(int flags) {
  const long number = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags);
  return number >= 0 ? static_cast<int>(number) : -errno;
}

int open_by_device(int device) {
  const long number = syscall(SYS_ioctl, device, abi::userfaultfd_ioc_new, O_CLOEXEC | O_NONBLOCK);
  return number >= 0 ? static_cast<int>(number) : -errno;
}

int open_by_device() {
  const descriptor device(static_cast<int>(syscall(SYS_openat, AT_FDCWD, userfaultfd_device, O_RDWR | O_CLOEXEC)));
  return device.ok() ? open_by_device(device.number()) : -errno;
}

// The device, kept open: a process may fork after it has given up its rights, or has changed to a root without /dev,
// and its child needs a userfaultfd of its own.
std::atomic<int> kept_device{-1};

// Makes the handshake and asks for `wanted`; true when the kernel grants it. `offered` returns all it has.
bool handshake(int userfaultfd, std::uint64_t wanted, std::uint64_t* offered = nullptr) {
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = wanted;
  if (syscall(SYS_ioctl, userfaultfd, UFFDIO_API, &api) != 0) return false;
  if (offered != nullptr) *offered = api.features;
  return (api.features & wanted) == wanted;
}

bool register_page(int userfaultfd, const scratch_pages& pages, std::size_t index, std::uint64_t mode) {
  uffdio_register registration{};
  registration.range = {pages.number(index), page_bytes};
  registration.mode = mode;
  return syscall(SYS_ioctl, userfaultfd, UFFDIO_REGISTER, &registration) == 0;
}

// Moves a page of known bytes onto a registered hole. If the hole stays empty it must not be touched, because nobody
// would resolve the miss.
bool try_move(const kernel_features& features) {
  const descriptor fault(open_userfaultfd(features));
  const scratch_pages pages(2);
  if (!fault.ok() || !pages.ok() || !handshake(fault.number(), abi::uffd_feature_move)) return false;
  pages.fill(0, 0x5a);
  if (!register_page(fault.number(), pages, 1, UFFDIO_REGISTER_MODE_MISSING)) return false;
  abi::uffdio_move move{};
  move.dst = pages.number(1);
  move.src = pages.number(0);
  move.len = page_bytes;
  if (syscall(SYS_ioctl, fault.number(), abi::uffdio_move_request, &move) != 0) return false;
  return pages.holds(1, 0x5a) && pages.holds(0, 0);
}

// Whether a page that came while it could only be read reports its first write once it may be written. Kernels before
// 5.18 forget that, and the write would be lost. Here the kernel itself writes: a protected page makes that EFAULT.
bool reports_writes_allowed_later(const kernel_features& features) {
  const descriptor fault(open_userfaultfd(features));
  const scratch_pages pages(2);
  if (!fault.ok() || !pages.ok()) return false;
  if (!handshake(fault.number(), UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_SIGBUS)) return false;
  pages.fill(0, 0x5a);
  if (!register_page(fault.number(), pages, 1, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP)) return false;
  if (syscall(SYS_mprotect, pages.page(1), page_bytes, PROT_READ) != 0) return false;
  uffdio_copy copy{};
  copy.dst = pages.number(1);
  copy.src = pages.number(0);
  copy.len = page_bytes;
  copy.mode = UFFDIO_COPY_MODE_WP;
  if (syscall(SYS_ioctl, fault.number(), UFFDIO_COPY, &copy) != 0) return false;
  if (syscall(SYS_mprotect, pages.page(1), page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  return syscall(SYS_uname, pages.page(1)) == -1 && errno == EFAULT && pages.holds(1, 0x5a);
}

bool try_write_protect(const kernel_features& features) {
  const descriptor fault(open_userfaultfd(features));
  const scratch_pages pages(1);
  if (!fault.ok() || !pages.ok() || !handshake(fault.number(), UFFD_FEATURE_PAGEFAULT_FLAG_WP)) return false;
  pages.fill(0, 0x5a);
  if (!register_page(fault.number(), pages, 0, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP)) return false;
  uffdio_writeprotect protection{};
  protection.range = {pages.number(0), page_bytes};
  protection.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  return syscall(SYS_ioctl, fault.number(), UFFDIO_WRITEPROTECT, &protection) == 0;
}

// Trying SIGBUS itself would take over the program's signal handler, so a granted handshake has to do.
bool granted(const kernel_features& features, std::uint64_t wanted) {
  const descriptor fault(open_userfaultfd(features));
  return fault.ok() && handshake(fault.number(), wanted);
}

void probe_userfaultfd(kernel_features& found, const kernel_features& allowed) {
  const descriptor full(open_by_system_call(0));
  const descriptor device(open_by_device());
  const bool through_device = !full.ok() && device.ok() && allowed.userfaultfd_through_device;
  found.userfaultfd_kernel_faults = (full.ok() || through_device) && allowed.userfaultfd_kernel_faults;
  found.userfaultfd_through_device = through_device && found.userfaultfd_kernel_faults;
  const descriptor user(open_by_system_call(abi::uffd_user_mode_only));
  found.userfaultfd = (user.ok() || found.userfaultfd_kernel_faults) && allowed.userfaultfd;
  if (!found.userfaultfd) {
    found.userfaultfd_kernel_faults = found.userfaultfd_through_device = false;
    found.userfaultfd_error_code = user.ok() ? EPERM : -user.number();
    return;
  }
  found.sigbus = granted(found, UFFD_FEATURE_SIGBUS);
  found.exact_address = granted(found, UFFD_FEATURE_EXACT_ADDRESS);
  found.thread_id = granted(found, UFFD_FEATURE_THREAD_ID);
  found.move = try_move(found);
  found.write_protect = try_write_protect(found);
  found.first_writes = found.write_protect && reports_writes_allowed_later(found);
}

bool try_vectored_discard() {
#ifdef SYS_process_madvise
  const descriptor self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  const scratch_pages pages(3);
  if (!self.ok() || !pages.ok()) return false;
  for (std::size_t i = 0; i < 3; ++i) pages.fill(i, 0x5a);
  const iovec ranges[2] = {{pages.page(0), page_bytes}, {pages.page(2), page_bytes}};
  const long dropped = syscall(SYS_process_madvise, self.number(), ranges, 2, MADV_DONTNEED, 0);
  return dropped == 2 * static_cast<long>(page_bytes) && pages.holds(0, 0) && pages.holds(1, 0x5a) && pages.holds(2, 0);
#else
  return false;
#endif
}

// Reads the entry of a page that was just written: bit 63 says that it has a frame.
bool try_pagemap(const descriptor& pagemap) {
  const scratch_pages pages(1);
  if (!pagemap.ok() || !pages.ok()) return false;
  pages.fill(0, 0x5a);
  std::uint64_t entry = 0;
  const auto offset = static_cast<off_t>(pages.number(0) / page_bytes * sizeof entry);
  return pread(pagemap.number(), &entry, sizeof entry, offset) == sizeof entry && (entry >> 63) == 1;
}

bool try_membarrier() {
  const long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  if (commands < 0 || (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return false;
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
         syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

bool try_io_uring() {
  io_uring_params parameters{};
  const descriptor ring(static_cast<int>(syscall(SYS_io_uring_setup, 1, &parameters)));
  return ring.ok();
}

// Asks for it with an address that no program has: where the kernel knows the call, it finds that wrong. The thread may
// use it already (in a guest under `farheap run`, the run door does), so nothing may change.
bool try_syscall_user_dispatch() {
#ifdef __x86_64__
  constexpr int set_syscall_user_dispatch = 59;  // as in linux/prctl.h, which older systems have without it
  constexpr long dispatch_on = 1;
  constexpr long no_address = -1;
  return syscall(SYS_prctl, set_syscall_user_dispatch, dispatch_on, 0L, 0L, no_address) == -1 && errno == EFAULT;
#else
  return false;
#endif
}

// A new file without a name in `directory`: its descriptor, or -errno.
int open_unlinked(const char* directory) {
  const long file = syscall(SYS_openat, AT_FDCWD, directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0) return static_cast<int>(file);
  if (errno != EOPNOTSUPP && errno != EISDIR) return -errno;
  // The file system has no O_TMPFILE.
  char path[4096];
  const int length = std::snprintf(path, sizeof path, "%s/.farheap-probe-%d", directory, static_cast<int>(getpid()));
  if (length < 0 || length >= static_cast<int>(sizeof path)) return -ENAMETOOLONG;
  const long named = syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (named < 0) return -errno;
  syscall(SYS_unlinkat, AT_FDCWD, path, 0);
  return static_cast<int>(named);
}

// Switches off in `allowed` what `disabled` names. Unknown names are reported: a test that disables nothing would pass
// for the wrong reason.
void apply_disabled(const char* disabled, kernel_features& allowed) {
  std::string_view rest = disabled == nullptr ? "" : disabled;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    bool known = name.empty();
    for (const feature_description& description : descriptions) {
      if (name != description.name) continue;
      allowed.*description.member = false;
      known = true;
    }
    if (!known) {
      log_line(log_level::warning,
               "FARHEAP_DISABLE names an unknown feature '%.*s'; see `farheap doctor` for the names",
               static_cast<int>(name.size()), name.data());
    }
  }
}

}  // namespace

std::span<const feature_description> known_features() noexcept {
  return descriptions;
}

kernel_features probe_kernel_now(const char* disabled) noexcept {
  const int saved_errno = errno;
  kernel_features allowed;
  for (const feature_description& description : descriptions) allowed.*description.member = true;
  apply_disabled(disabled, allowed);
  kernel_features found;
  probe_userfaultfd(found, allowed);
  found.vectored_discard = try_vectored_discard();
  const descriptor pagemap(static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC)));
  found.pagemap = try_pagemap(pagemap);
  found.membarrier = try_membarrier();
  found.io_uring = try_io_uring();
  found.syscall_user_dispatch = try_syscall_user_dispatch();
  for (const feature_description& description : descriptions) {
    if (!(allowed.*description.member)) found.*description.member = false;
  }
  errno = saved_errno;
  return found;
}

const kernel_features& probe_kernel() noexcept {
  static const kernel_features found = probe_kernel_now(std::getenv("FARHEAP_DISABLE"));
  return found;
}

int open_userfaultfd(const kernel_features& features) noexcept {
  if (!features.userfaultfd) return -(features.userfaultfd_error_code != 0 ? features.userfaultfd_error_code : EPERM);
  if (!features.userfaultfd_kernel_faults) return open_by_system_call(abi::uffd_user_mode_only);
  const int opened = features.userfaultfd_through_device ? open_by_device() : open_by_system_call(0);
  const int kept = kept_device.load();
  return opened < 0 && kept >= 0 ? open_by_device(kept) : opened;
}

void keep_userfaultfd_device() noexcept {
  if (kept_device.load() >= 0) return;
  const int saved_errno = errno;
  const long device = syscall(SYS_openat, AT_FDCWD, userfaultfd_device, O_RDWR | O_CLOEXEC);
  if (device >= 0) kept_device.store(own_descriptor(static_cast<int>(device)));
  errno = saved_errno;
}

int direct_io_works(const char* directory) noexcept {
  const int opened = open_unlinked(directory);
  if (opened < 0) return opened;
  const descriptor file(opened);
  const scratch_pages pages(1);
  if (!pages.ok()) return -ENOMEM;
  if (syscall(SYS_fcntl, file.number(), F_SETFL, O_DIRECT) != 0) return 0;
  const ssize_t written = pwrite(file.number(), pages.page(0), page_bytes, 0);
  if (written == static_cast<ssize_t>(page_bytes)) return 1;
  return written < 0 && errno != EINVAL ? -errno : 0;
}

}  // namespace far::platform
