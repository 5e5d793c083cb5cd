#include "program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

namespace far::tools {
namespace {

// The kernel follows as many scripts that name scripts.
constexpr int longest_script_chain = 5;

#if defined(__x86_64__)
constexpr unsigned this_machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr unsigned this_machine = EM_AARCH64;
#elif defined(__riscv)
constexpr unsigned this_machine = EM_RISCV;
#else
#error "add the ELF machine number of this architecture"
#endif

error refusal(const std::string& path, const std::string& why, int code) {
  return error{"'" + path + "' " + why, code};
}

class file {
 public:
  explicit file(const std::string& path) : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~file() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  file(const file&) = delete;
  file& operator=(const file&) = delete;

  [[nodiscard]] bool ok() const { return descriptor_ >= 0; }
  [[nodiscard]] bool read_at(void* to, std::size_t bytes, std::uint64_t position) const {
    return pread(descriptor_, to, bytes, static_cast<off_t>(position)) == static_cast<ssize_t>(bytes);
  }
  // The first bytes of the file, as far as there are any.
  [[nodiscard]] std::string head(std::size_t bytes) const {
    std::string text(bytes, '\0');
    const ssize_t got = pread(descriptor_, text.data(), bytes, 0);
    text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return text;
  }

 private:
  int descriptor_;
};

// A program that gains rights when it starts ignores LD_PRELOAD.
result<void> check_privileges(const std::string& path, const struct stat& status) {
  const bool user = (status.st_mode & S_ISUID) != 0 && status.st_uid != geteuid();
  const bool group = (status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0 && status.st_gid != getegid();
  const bool capable = geteuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
  if (!user && !group && !capable) return {};
  return refusal(path,
                 std::string(capable ? "has file capabilities" : "is set-uid or set-gid") +
                     ", so the system does not load the runtime into it; run it as a user who already has its rights",
                 exit_failure);
}

result<void> check_elf(const std::string& path, const file& opened) {
  Elf64_Ehdr header{};
  const bool whole = opened.read_at(&header, sizeof header, 0);
  if (!whole || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != this_machine) {
    return refusal(path, "is a program for another kind of machine, or a 32-bit one; run one built for this machine",
                   exit_failure);
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!opened.read_at(&segment, sizeof segment, header.e_phoff + std::uint64_t{i} * header.e_phentsize)) {
      return refusal(path, "is damaged: its ELF program headers end early; build or install it again",
                     exit_not_executable);
    }
    if (segment.p_type == PT_INTERP) return {};
  }
  return refusal(path,
                 "is statically linked, so the runtime cannot be loaded into it; link it dynamically (without -static)",
                 exit_failure);
}

// The interpreter that the first line of a script names.
std::optional<std::string> interpreter_of(std::string_view head) {
  head.remove_prefix(2);
  head = head.substr(0, head.find('\n'));
  const std::size_t begin = head.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  head.remove_prefix(begin);
  return std::string(head.substr(0, head.find_first_of(" \t\r")));
}

// 0, or why the file at `path` cannot be executed: an errno value.
int executable_error(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (!S_ISREG(status.st_mode)) return EACCES;
  return access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

error cannot_execute(const std::string& name, int failure) {
  if (failure == ENOENT || failure == ENOTDIR) {
    return refusal(name, "does not exist; check the name of the program", exit_not_found);
  }
  if (failure == EISDIR) return refusal(name, "is a directory; name a program", exit_not_executable);
  return refusal(name, std::string("cannot be executed: ") + std::strerror(failure) + "; check its mode (chmod +x)",
                 exit_not_executable);
}

}  // namespace

// As execvp(3) searches, but a program that is found and cannot be executed is told from one that is missing.
result<std::string> find_program(const std::string& name, const char* search_path) {
  if (name.empty()) return error{"the name of the program is empty; write one after --", exit_usage};
  if (name.find('/') != std::string::npos) {
    const int failure = executable_error(name);
    if (failure != 0) return cannot_execute(name, failure);
    return name;
  }
  std::string_view rest = search_path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : search_path;
  std::optional<far::error> found_but_unusable;
  while (true) {
    const std::size_t colon = rest.find(':');
    const std::string directory(rest.substr(0, colon));
    const std::string candidate = (directory.empty() ? "." : directory) + "/" + name;
    const int failure = executable_error(candidate);
    if (failure == 0) return candidate;
    if (failure == EACCES && access(candidate.c_str(), F_OK) == 0)
      found_but_unusable = cannot_execute(candidate, EACCES);
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  if (found_but_unusable) return *found_but_unusable;
  return error{"there is no program '" + name + "' in PATH; check the name, or give its path", exit_not_found};
}

// Follows #! lines to the program that the kernel will load in the end, since that one has to take the preload library.
result<void> check_preloadable(const std::string& path) {
  std::string current = path;
  for (int depth = 0; depth < longest_script_chain; ++depth) {
    struct stat status{};
    const int failure = executable_error(current);
    if (failure != 0 || stat(current.c_str(), &status) != 0) {
      if (depth == 0) return cannot_execute(current, failure);
      return refusal(path, "names the interpreter '" + current + "', which cannot be executed; correct its #! line",
                     exit_not_executable);
    }
    const file opened(current);
    // A program may be executable and not readable: then its inside cannot be checked.
    if (!opened.ok()) return check_privileges(current, status);
    const std::string head = opened.head(256);
    if (head.starts_with(ELFMAG)) {
      const result<void> privileges = check_privileges(current, status);
      return privileges.ok() ? check_elf(current, opened) : privileges;
    }
    if (!head.starts_with("#!")) {
      return refusal(current,
                     "is neither a program nor a script that begins with #!; name its interpreter, as in: "
                     "farheap run -- sh " +
                         current,
                     exit_not_executable);
    }
    const std::optional<std::string> interpreter = interpreter_of(head);
    if (!interpreter) {
      return refusal(current, "begins with #! but names no interpreter; add one", exit_not_executable);
    }
    current = *interpreter;
  }
  return refusal(path, "is a script whose interpreter is a script, and so on; name a program", exit_not_executable);
}

}  // namespace far::tools
