// spawner self|child as|data far|native: limits itself, or each of its children does so, and starts itself again in
// many ways. What was started prints the limit that it got, with an empty environment the kernel's ("native"). Each way
// first fails to start what is not there.
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <string>

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr rlim_t limit_bytes = 600 * mib;
constexpr rlim_t limit_of_child_bytes = 700 * mib;

__rlimit_resource kind = RLIMIT_AS;
bool children_limit_themselves = false;
const char* self = nullptr;
char* nothing[] = {nullptr};
char** environment = nothing;
char own_name[] = "spawner";
char report[] = "report";
char kind_name[] = "data";
char* given[] = {own_name, report, nullptr, nullptr};

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::fflush(stdout);
  _exit(1);
}

template <typename Value>
long number_of(Value* pointer) {
  return reinterpret_cast<long>(pointer);
}

// A call by an instruction of the program's own.
long instruction(long number, long a, long b, long c, long d = 0, long e = 0) {
#if defined(__x86_64__)
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  long result = number;
  asm volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
#else
  return syscall(number, a, b, c, d, e);
#endif
}

// ---- ways to become another program ----

using become_function = void (*)(const char* path);

void by_name(const char* path) {
  execve(path, given, environment);
}
void by_search(const char* path) {
  execvpe(path, given, environment);
}
void by_descriptor(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file >= 0) fexecve(file, given, environment);
}
void by_directory(const char* path) {
  execveat(AT_FDCWD, path, given, environment, 0);
}
void by_number(const char* path) {
  syscall(SYS_execve, path, given, environment);
}
void by_number_and_directory(const char* path) {
  syscall(SYS_execveat, AT_FDCWD, path, given, environment, 0);
}
void by_instruction(const char* path) {
  instruction(SYS_execve, number_of(path), number_of(given), number_of(environment));
}
void by_instruction_and_directory(const char* path) {
  instruction(SYS_execveat, AT_FDCWD, number_of(path), number_of(given), number_of(environment), 0);
}

struct way {
  const char* name;
  become_function become;
};
constexpr way ways[] = {{"execve", by_name},
                        {"execvpe", by_search},
                        {"fexecve", by_descriptor},
                        {"execveat", by_directory},
                        {"syscall(SYS_execve)", by_number},
                        {"syscall(SYS_execveat)", by_number_and_directory},
                        {"execve by an instruction", by_instruction},
                        {"execveat by an instruction", by_instruction_and_directory}};

// ---- ways in which a child limits itself ----

const rlimit limit_of_child{limit_of_child_bytes, limit_of_child_bytes + mib};

void limit_by_name() {
  if (setrlimit(kind, &limit_of_child) != 0) _exit(2);
}
void limit_by_newer_name() {
  if (prlimit(getpid(), kind, &limit_of_child, nullptr) != 0) _exit(2);
}
void limit_by_number() {
  if (syscall(SYS_prlimit64, 0, kind, &limit_of_child, nullptr) != 0) _exit(2);
}

void (*const ways_to_limit[])() = {limit_by_name, limit_by_newer_name, limit_by_number};

// ---- children ----

void check_own_limit() {
  rlimit now{};
  if (getrlimit(kind, &now) != 0 || (now.rlim_cur == limit_bytes) == children_limit_themselves) fail("own limit");
}

// Memory can be mapped as before.
void check_memory() {
  void* const block = mmap(nullptr, 4 * mib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) fail("memory after a child");
  std::memset(block, 1, 4 * mib);
  munmap(block, 4 * mib);
}

void run_child(std::size_t number, become_function become) {
  if (children_limit_themselves) {
    ways_to_limit[number % std::size(ways_to_limit)]();
    rlimit now{};
    if (getrlimit(kind, &now) != 0 || std::memcmp(&now, &limit_of_child, sizeof now) != 0) _exit(3);
  }
  errno = 0;
  become("/nowhere");
  if (errno != ENOENT) _exit(4);
  become(self);
  _exit(5);
}

void expect_end(const char* name, pid_t child) {
  int status = 1;
  if (child < 0 || waitpid(child, &status, __WALL) != child) fail(name);
  if (status != 0) std::printf("%s: status %d\n", name, status);
  std::fflush(stdout);
  check_own_limit();
  check_memory();
}

void start_by_fork_and_vfork() {
  for (const way& one : ways) {
    const auto number = static_cast<std::size_t>(&one - ways);
    std::printf("fork, %s: ", one.name);
    std::fflush(stdout);
    const pid_t copy = fork();
    if (copy == 0) run_child(number, one.become);
    expect_end(one.name, copy);
    std::printf("vfork, %s: ", one.name);
    std::fflush(stdout);
    // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork)
    const pid_t borrower = vfork();
    if (borrower == 0) run_child(number, one.become);
    expect_end(one.name, borrower);
  }
}

int start_on_stack(void* number) {
  run_child(*static_cast<std::size_t*>(number), by_name);
  return 0;
}

void start_by_clone() {
  static char stack[256 * 1024];
  std::size_t number = 1;
  std::printf("clone: ");
  std::fflush(stdout);
  expect_end("clone", clone(start_on_stack, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &number));
}

void start_by_library() {
  for (const bool searches : {false, true}) {
    pid_t child = -1;
    const auto call = searches ? posix_spawnp : posix_spawn;
    const char* const name = searches ? "posix_spawnp" : "posix_spawn";
    if (call(&child, "/nowhere", nullptr, nullptr, given, environment) != ENOENT) fail("posix_spawn of nothing");
    std::printf("%s: ", name);
    std::fflush(stdout);
    errno = call(&child, self, nullptr, nullptr, given, environment);
    if (errno != 0) fail(name);
    expect_end(name, child);
  }
  char command[4096];
  std::snprintf(command, sizeof command, "'%s' report%s%s", self, given[2] == nullptr ? "" : " ",
                given[2] == nullptr ? "" : given[2]);
  environ = environment;
  std::printf("system: ");
  std::fflush(stdout);
  std::printf("status %d\npopen: ", std::system(command));
  std::fflush(stdout);
  FILE* const output = popen(command, "r");
  char line[100] = "";
  if (output == nullptr || std::fgets(line, sizeof line, output) == nullptr) fail("popen");
  std::printf("%s", line);
  std::printf("status %d\n", pclose(output));
}

int report_limit() {
  rlimit now{};
  if (getrlimit(kind, &now) != 0) fail("getrlimit");
  const auto hard = now.rlim_max == RLIM_INFINITY ? "unlimited" : std::to_string(now.rlim_max / mib);
  std::printf("limit %zu, at most %s\n", static_cast<std::size_t>(now.rlim_cur / mib), hard.c_str());
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 1;
  const char* const what = count > 2 ? arguments[2] : "as";
  if (std::strcmp(what, "data") == 0) {
    kind = RLIMIT_DATA;
    given[2] = kind_name;
  }
  if (std::strcmp(arguments[1], "report") == 0) return report_limit();
  if (count < 4) return 1;
  self = "/proc/self/exe";
  static char path[4096];
  if (readlink(self, path, sizeof path - 1) <= 0) fail("readlink");
  self = path;
  if (std::strcmp(arguments[3], "far") == 0) environment = environ;
  children_limit_themselves = std::strcmp(arguments[1], "child") == 0;
  if (!children_limit_themselves) {
    rlimit limit{};
    if (getrlimit(kind, &limit) != 0) fail("getrlimit");
    limit.rlim_cur = limit_bytes;
    limit.rlim_max = 2 * limit_bytes;
    if (setrlimit(kind, &limit) != 0) fail("setrlimit");
  }
  start_by_fork_and_vfork();
  start_by_clone();
  if (!children_limit_themselves) start_by_library();
  std::puts("done");
}
