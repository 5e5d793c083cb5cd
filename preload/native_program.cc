#include "preload/native_program.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace far::preload {
namespace {

constexpr int longest_script_chain = 5;  // the kernel follows no more

// A program that gains rights when it starts ignores LD_PRELOAD.
bool gains_rights(const struct stat& status) {
  const bool user = (status.st_mode & S_ISUID) != 0 && status.st_uid != geteuid();
  const bool group = (status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0 && status.st_gid != getegid();
  return user || group;
}

const char* why_native_elf(int file, const Elf64_Ehdr& header) {
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return "is built for a 32-bit machine";
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    const auto at = static_cast<off_t>(header.e_phoff + static_cast<unsigned long>(i) * header.e_phentsize);
    if (pread(file, &segment, sizeof segment, at) != static_cast<ssize_t>(sizeof segment)) return nullptr;
    if (segment.p_type == PT_INTERP) return nullptr;
  }
  return "is statically linked";
}

// The interpreter that the first line of a script names, into `name`; false when there is none.
bool read_interpreter(const char* head, char (&name)[PATH_MAX]) {
  const char* const begin = head + 2 + std::strspn(head + 2, " \t");
  const std::size_t length = std::strcspn(begin, " \t\r\n");
  if (length == 0 || length >= sizeof name) return false;
  std::memcpy(name, begin, length);
  name[length] = 0;
  return true;
}

}  // namespace

// Follows scripts to their interpreters, which the kernel runs. Files that cannot be read are left to exec, which
// reports them better.
const char* why_native(const char* path) noexcept {
  char name[PATH_MAX];
  for (int depth = 0; depth < longest_script_chain; ++depth) {
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file < 0) return nullptr;
    union {
      Elf64_Ehdr header;
      char text[256];
    } head{};
    struct stat status{};
    const bool regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & 0111) != 0;
    const ssize_t got = regular ? pread(file, head.text, sizeof head.text - 1, 0) : 0;
    const bool elf = got >= static_cast<ssize_t>(sizeof head.header) && std::memcmp(head.text, ELFMAG, SELFMAG) == 0;
    const char* const why = !elf                   ? nullptr
                            : gains_rights(status) ? "gains rights when it starts (set-uid or set-gid)"
                                                   : why_native_elf(file, head.header);
    close(file);
    if (elf || got < 3 || head.text[0] != '#' || head.text[1] != '!') return why;
    if (!read_interpreter(head.text, name)) return nullptr;
    path = name;
  }
  return nullptr;
}

}  // namespace far::preload
