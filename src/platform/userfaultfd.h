// A userfaultfd descriptor: the hardware guard's link to the kernel. See userfaultfd(2), ioctl_userfaultfd(2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "platform/kernel_features.h"

namespace far::platform {

// A miss, or a first write to a write-protected page, as the kernel reported it.
struct fault {
  std::uintptr_t address = 0;
  bool write = false;            // the access was a write
  bool write_protected = false;  // the page is mapped, but write-protected
  std::uint32_t thread_id = 0;   // that faulted, or 0 when the kernel does not say
};

class userfaultfd {
 public:
  // Opens a descriptor and agrees on features. `signal_faults`: the missing thread gets SIGBUS, and no event is queued.
  [[nodiscard]] static result<userfaultfd> open(const kernel_features& features, bool signal_faults);

  userfaultfd(userfaultfd&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  userfaultfd& operator=(userfaultfd&&) = delete;
  ~userfaultfd();

  // In the child of a fork, whose descriptor serves its parent: opens its own in its place, by the same number.
  [[nodiscard]] result<void> reopen_in_child(const kernel_features& features, bool signal_faults);

  [[nodiscard]] int descriptor() const { return descriptor_; }

  // Fills `faults` with what is queued; returns how many. Never blocks.
  [[nodiscard]] std::size_t read(std::span<fault> faults) const;

  // The ioctls. Each returns 0 or an errno value; addresses and lengths are whole pages. `copy` and `move` return how
  // many bytes were done, from the start, and set `error_code` when that is not all.
  [[nodiscard]] int register_range(std::uintptr_t start, std::size_t bytes, bool write_protect) const;
  [[nodiscard]] int unregister_range(std::uintptr_t start, std::size_t bytes) const;
  [[nodiscard]] std::size_t copy(std::uintptr_t to, const std::byte* from, std::size_t bytes, bool write_protect,
                                 int* error_code) const;
  [[nodiscard]] std::size_t move(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, int* error_code) const;
  [[nodiscard]] int write_protect(std::uintptr_t start, std::size_t bytes, bool protect) const;
  [[nodiscard]] int wake(std::uintptr_t start, std::size_t bytes) const;

  // Maps zeros at a page of a registered range, unless it has bytes already, in core or swapped out.
  void fill_hole(std::uintptr_t page) const;

 private:
  explicit userfaultfd(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
};

}  // namespace far::platform
