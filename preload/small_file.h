// Small files, such as those of /proc, past every interposed name, and without the C library's streams, which would
// allocate memory: where the program brings an allocator of its own, that one may not be made for the runtime's
// threads.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace far::preload {

// Reads the file as text, as far as there is room for it. False, and an empty text: it cannot be read, or has nothing.
template <std::size_t room>
bool read_text(const char* path, char (&text)[room]) {
  text[0] = 0;
  const long file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const long got = syscall(SYS_read, file, text, room - 1);
  syscall(SYS_close, file);
  text[got > 0 ? got : 0] = 0;
  return got > 0;
}

}  // namespace far::preload
