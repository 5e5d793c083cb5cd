#include "platform/userfaultfd.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "platform/own_descriptors.h"
#include "platform/userfaultfd_abi.h"

namespace far::platform {
namespace {

constexpr std::size_t events_a_read = 64;

}  // namespace

result<userfaultfd> userfaultfd::open(const kernel_features& features, bool signal_faults) {
  int opened_number = open_userfaultfd(features);
  if (opened_number == -EPERM && signal_faults) {
    // The process has given up rights since the features were tried. For signals the least features are enough.
    kernel_features least = features;
    least.userfaultfd_kernel_faults = false;
    opened_number = open_userfaultfd(least);
  }
  const int descriptor = own_descriptor(opened_number);
  if (descriptor < 0) {
    return error{std::string("cannot open a userfaultfd (") + std::strerror(-descriptor) +
                     "); run as root, or ask the administrator for: sysctl vm.unprivileged_userfaultfd=1",
                 -descriptor};
  }
  userfaultfd opened(descriptor);
  uffdio_api handshake{};
  handshake.api = UFFD_API;
  if (features.write_protect) handshake.features |= UFFD_FEATURE_PAGEFAULT_FLAG_WP;
  if (features.exact_address) handshake.features |= UFFD_FEATURE_EXACT_ADDRESS;
  if (features.thread_id && !signal_faults) handshake.features |= UFFD_FEATURE_THREAD_ID;
  if (features.move) handshake.features |= abi::uffd_feature_move;
  if (signal_faults) handshake.features |= UFFD_FEATURE_SIGBUS;
  if (ioctl(descriptor, UFFDIO_API, &handshake) != 0) {
    return error{std::string("the kernel refuses the userfaultfd features that 'farheap doctor' lists (") +
                     std::strerror(errno) + ")",
                 errno};
  }
  return opened;
}

userfaultfd::~userfaultfd() {
  if (descriptor_ >= 0) close(descriptor_);
}

// Closes the old one first: there may be no other number for the new one.
result<void> userfaultfd::reopen_in_child(const kernel_features& features, bool signal_faults) {
  const int number = std::exchange(descriptor_, -1);
  close(number);
  result<userfaultfd> opened = open(features, signal_faults);
  if (!opened) return opened.error();
  descriptor_ = std::exchange(opened.value().descriptor_, -1);
  if (descriptor_ != number && dup3(descriptor_, number, O_CLOEXEC) == number) {
    keep_own_descriptor(number);  // which it is no more since it was closed
    close_own_descriptor(std::exchange(descriptor_, number));
  }
  return {};
}

std::size_t userfaultfd::read(std::span<fault> faults) const {
  std::array<uffd_msg, events_a_read> events;
  const std::size_t wanted = faults.size() < events.size() ? faults.size() : events.size();
  const ssize_t got = ::read(descriptor_, events.data(), wanted * sizeof(uffd_msg));
  if (got < 0) {
    FAR_CHECK(errno == EAGAIN || errno == EINTR, "a userfaultfd can always be read");
    return 0;
  }
  std::size_t count = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(got) / sizeof(uffd_msg); ++i) {
    const uffd_msg& event = events[i];
    if (event.event != UFFD_EVENT_PAGEFAULT) continue;  // no other event was asked for
    const std::uint64_t flags = event.arg.pagefault.flags;
    faults[count++] = {.address = static_cast<std::uintptr_t>(event.arg.pagefault.address),
                       .write = (flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0,
                       .write_protected = (flags & UFFD_PAGEFAULT_FLAG_WP) != 0,
                       .thread_id = event.arg.pagefault.feat.ptid};
  }
  return count;
}

int userfaultfd::register_range(std::uintptr_t start, std::size_t bytes, bool write_protect) const {
  uffdio_register request{};
  request.range = {.start = start, .len = bytes};
  request.mode = UFFDIO_REGISTER_MODE_MISSING | (write_protect ? UFFDIO_REGISTER_MODE_WP : 0);
  return ioctl(descriptor_, UFFDIO_REGISTER, &request) == 0 ? 0 : errno;
}

int userfaultfd::unregister_range(std::uintptr_t start, std::size_t bytes) const {
  uffdio_range range{.start = start, .len = bytes};
  return ioctl(descriptor_, UFFDIO_UNREGISTER, &range) == 0 ? 0 : errno;
}

std::size_t userfaultfd::copy(std::uintptr_t to, const std::byte* from, std::size_t bytes, bool write_protect,
                              int* error_code) const {
  std::size_t done = 0;
  while (done < bytes) {
    uffdio_copy request{};
    request.dst = to + done;
    request.src = reinterpret_cast<std::uintptr_t>(from) + done;
    request.len = bytes - done;
    request.mode = write_protect ? UFFDIO_COPY_MODE_WP : 0;
    const bool complete = ioctl(descriptor_, UFFDIO_COPY, &request) == 0;
    const int failure = errno;
    if (request.copy > 0) done += static_cast<std::size_t>(request.copy);
    if (complete) break;
    // EAGAIN: the address space is changing under us, or a part was done. Both mean "go on".
    if (failure == EAGAIN) continue;
    *error_code = failure;
    break;
  }
  return done;
}

std::size_t userfaultfd::move(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, int* error_code) const {
  std::size_t done = 0;
  while (done < bytes) {
    abi::uffdio_move request{};
    request.dst = to + done;
    request.src = from + done;
    request.len = bytes - done;
    const bool complete = ioctl(descriptor_, abi::uffdio_move_request, &request) == 0;
    const int failure = errno;
    if (request.move > 0) done += static_cast<std::size_t>(request.move);
    if (complete) break;
    if (failure == EAGAIN) continue;
    *error_code = failure;
    break;
  }
  return done;
}

int userfaultfd::write_protect(std::uintptr_t start, std::size_t bytes, bool protect) const {
  uffdio_writeprotect request{};
  request.range = {.start = start, .len = bytes};
  request.mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0;
  while (ioctl(descriptor_, UFFDIO_WRITEPROTECT, &request) != 0) {
    if (errno != EAGAIN) return errno;
  }
  return 0;
}

int userfaultfd::wake(std::uintptr_t start, std::size_t bytes) const {
  uffdio_range range{.start = start, .len = bytes};
  return ioctl(descriptor_, UFFDIO_WAKE, &range) == 0 ? 0 : errno;
}

void userfaultfd::fill_hole(std::uintptr_t page) const {
  uffdio_zeropage request{};
  request.range = {.start = page, .len = page_bytes};
  while (ioctl(descriptor_, UFFDIO_ZEROPAGE, &request) != 0) {
    FAR_CHECK(errno == EAGAIN || errno == EEXIST || errno == ENOENT || errno == ENOMEM, "a hole can be filled");
    if (errno == EEXIST || errno == ENOENT) return;
  }
}

}  // namespace far::platform
