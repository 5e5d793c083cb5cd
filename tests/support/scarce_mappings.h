// A process that has nearly as many mappings as the kernel allows it (vm.max_map_count).
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include "base/units.h"

namespace far::test {

// Takes all mappings that are left, until it is destroyed.
class scarce_mappings {
 public:
  scarce_mappings() {
    while (end_ + 2 * page_bytes <= bytes && protect(end_ + page_bytes, PROT_READ)) end_ += 2 * page_bytes;
  }
  ~scarce_mappings() { syscall(SYS_munmap, place_, bytes); }
  scarce_mappings(const scarce_mappings&) = delete;
  scarce_mappings& operator=(const scarce_mappings&) = delete;

  [[nodiscard]] bool are_used_up() const { return end_ > 0 && end_ + 2 * page_bytes <= bytes; }
  // Gives one of them back. Requires: it has some.
  void give_back() {
    end_ -= 2 * page_bytes;
    syscall(SYS_munmap, place_ + end_ + page_bytes, page_bytes);
  }

 private:
  static constexpr std::size_t bytes = 512 * mib;

  [[nodiscard]] bool protect(std::size_t at, int protection) const {
    return syscall(SYS_mprotect, place_ + at, page_bytes, protection) == 0;
  }

  std::byte* const place_ = reinterpret_cast<std::byte*>(
      syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0L));
  std::size_t end_ = 0;
};

}  // namespace far::test
