#include "preload/restricted_program.h"

#include <fcntl.h>
#include <link.h>
#include <linux/seccomp.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>

#include "base/units.h"

namespace far::preload {
namespace {

// libmozsandbox is Firefox's.
constexpr std::array libraries = {"libseccomp.so", "libmozsandbox.so"};
// Of PR_SET_SECCOMP and SECCOMP_MODE_FILTER: "seccomp" alone is also in advice that programs give. Of monitors of
// virtual machines, whose memory the kernel accesses while they run.
constexpr std::array<std::string_view, 2> constants = {"SECCOMP", "/dev/kvm"};
constexpr std::size_t longest_constant = 8;
// Bounds the time that a program takes to start.
constexpr std::size_t most_bytes = 32 * mib;

int is_such_library(dl_phdr_info* object, std::size_t, void*) {
  if (object->dlpi_name == nullptr) return 0;
  return std::any_of(libraries.begin(), libraries.end(),
                     [&](const char* name) { return std::strstr(object->dlpi_name, name) != nullptr; })
             ? 1
             : 0;
}

// Read rather than looked at where it is mapped, which would make all of it resident.
bool holds_constant(std::string_view text) {
  return std::any_of(constants.begin(), constants.end(),
                     [&](std::string_view name) { return text.find(name) != std::string_view::npos; });
}

bool holds_constant(int file, std::size_t from, std::size_t bytes) {
  std::array<char, 64 * kib> buffer;
  std::size_t kept = 0;  // of the last round, because the name may lie across two
  while (bytes > 0) {
    const ssize_t got =
        pread(file, buffer.data() + kept, std::min(bytes, buffer.size() - kept), static_cast<off_t>(from));
    if (got <= 0) return false;
    const std::size_t all = kept + static_cast<std::size_t>(got);
    if (holds_constant({buffer.data(), all})) return true;
    kept = std::min(all, longest_constant - 1);
    std::memmove(buffer.data(), buffer.data() + all - kept, kept);
    from += static_cast<std::size_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return false;
}

bool names_constant() {
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const std::span segments(reinterpret_cast<const ElfW(Phdr)*>(getauxval(AT_PHDR)), getauxval(AT_PHNUM));
  std::size_t left_bytes = most_bytes;
  bool found = false;
  for (const ElfW(Phdr) & segment : segments) {
    const bool is_constant = segment.p_type == PT_LOAD && (segment.p_flags & (PF_W | PF_X)) == 0;
    if (!is_constant || found) continue;
    const std::size_t bytes = std::min<std::size_t>(segment.p_filesz, left_bytes);
    found = holds_constant(file, segment.p_offset, bytes);
    left_bytes -= bytes;
  }
  close(file);
  return found;
}

}  // namespace

bool restricts_calls(long number, long first_argument) noexcept {
  if (number == SYS_prctl) return first_argument == PR_SET_SECCOMP;
  return number == SYS_seccomp &&
         (first_argument == SECCOMP_SET_MODE_STRICT || first_argument == SECCOMP_SET_MODE_FILTER);
}

bool suits_thread_mode() noexcept {
  return dl_iterate_phdr(is_such_library, nullptr) != 0 || names_constant();
}

}  // namespace far::preload
