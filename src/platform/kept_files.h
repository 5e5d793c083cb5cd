// Files of the kernel that the runtime reads again and again, of /proc and of cgroups, kept open.
//
// A file that is opened takes the lowest free number, if only for a moment, and a program may count on that number:
// between its close(0) and its open(), or for a dup2() to a number that it knows to be free. Then the runtime would
// read from the program's file, and close it. So nothing that goes on beside the program opens files.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace far::platform {

// Reads from `offset` on, as far as there is room. -1 with errno: it cannot be read. A file that cannot be kept, for
// want of descriptors, is opened for each call. Requires: `room` is local memory.
[[nodiscard]] ssize_t read_kept(const char* path, std::span<char> room, off_t offset = 0) noexcept;

// The same as text. False, and an empty one: it cannot be read, or has nothing.
template <std::size_t room>
bool read_kept_text(const char* path, char (&text)[room]) noexcept {
  const ssize_t got = read_kept(path, std::span(text, room - 1));
  text[got > 0 ? got : 0] = 0;
  return got > 0;
}

// All of it.
[[nodiscard]] std::optional<std::string> read_whole_kept(const std::string& path);

// In the child of a fork: they are about its parent.
void close_kept_files_in_child() noexcept;

}  // namespace far::platform
