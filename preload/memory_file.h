// /proc/self/mem: the program's own memory as a file. The kernel waits for nobody there, and fails at remote pages. So
// they are brought in and pinned during a transfer.
//
// Whether a transfer is one with that file is asked of its descriptor each time, since there are many ways to get
// another descriptor of a file. But nothing is asked until the program has opened it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "preload/raw_calls.h"

namespace far::preload {

// Whether an open file has this name in the directory of this process in /proc, or in that of one of its threads.
// Requires: a section of the runtime.
[[nodiscard]] bool is_own_process_file(int descriptor, const char* name) noexcept;

// To be told of each file that the program has opened, by this path. Preserves errno.
void note_opened(int descriptor, const char* path) noexcept;
// The same before a system call that opens one. The path may be a bad pointer.
void note_opening(const char* path) noexcept;

// Makes a system call that is a transfer with this file, in parts, like the kernel: `*result` is then -errno or the
// bytes. Returns whether it was one. Preserves errno. Requires: its buffers can be touched where they are no bad
// pointers.
[[nodiscard]] bool serve_memory_file(long number, const call_arguments& arguments, long* result) noexcept;

// Pages of the program from an address on, as far as they are mapped far memory, pinned while this lives.
class pinned_part {
 public:
  static constexpr std::size_t most_pages = 16;

  pinned_part(std::uintptr_t address, std::size_t bytes) noexcept;
  ~pinned_part();
  pinned_part(const pinned_part&) = delete;
  pinned_part& operator=(const pinned_part&) = delete;

  // As much of a transfer as can be pinned at a time.
  [[nodiscard]] static std::size_t bytes_from(std::uintptr_t address, std::size_t bytes) noexcept;

 private:
  std::size_t count_ = 0;
  std::array<const std::byte*, most_pages + 1> pages_{};
};

}  // namespace far::preload
