// A program that is alone in its process, and counts on it: `loner PART`. Its output is the same wherever it runs.
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t mib = std::size_t{1} << 20;

unsigned char* map(std::size_t bytes) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) std::abort();
  return static_cast<unsigned char*>(mapped);
}

bool is_before(std::chrono::steady_clock::time_point end) {
  return std::chrono::steady_clock::now() < end;
}

// Walks over more memory than the budget, so that pages come and go beside what the program does.
class walk {
 public:
  static constexpr std::size_t bytes = 96 * mib;
  void step() {
    memory_[at_] = static_cast<unsigned char>(memory_[at_] + 1);
    at_ = (at_ + page) % bytes;
  }
  [[nodiscard]] void* place(std::size_t at) const { return memory_ + at; }

 private:
  unsigned char* memory_ = map(bytes);
  std::size_t at_ = 0;
};

// The lowest number that is free is the next one, as long as nobody else opens anything; and what is placed there
// stays.
void numbers() {
  walk memory;
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int next = null + 1;
  long others = 0;
  long lost = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (is_before(end)) {
    for (int i = 0; i < 200; ++i) {
      const int got = dup(STDERR_FILENO);
      others += got != next ? 1 : 0;
      close(got);
      if (dup2(null, next) != next) ++lost;
      if (close(next) != 0) ++lost;
      memory.step();
    }
  }
  std::printf("taken by others: %ld, lost: %ld\n", others, lost);
}

// The numbers of all threads of a process, by a system call: readdir() leaves the runtime's out.
std::vector<std::string> all_threads(const std::string& path) {
  std::vector<std::string> all;
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alignas(dirent64) char entries[4096];
  for (long bytes = 0; (bytes = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;) {
    for (long at = 0; at < bytes;) {
      const auto& entry = *reinterpret_cast<const dirent64*>(entries + at);
      if (entry.d_name[0] != '.') all.emplace_back(entry.d_name);
      at += entry.d_reclen;
    }
  }
  close(folder);
  return all;
}

// Whether every thread of this process sees a descriptor of the calling one. Threads may end meanwhile.
bool is_seen_by_all(int descriptor) {
  bool all = true;
  for (const std::string& thread : all_threads("/proc/self/task")) {
    const std::string path = "/proc/self/task/" + thread;
    const auto is_seen = [&] { return access((path + "/fd/" + std::to_string(descriptor)).c_str(), F_OK) == 0; };
    const auto is_gone = [&] { return access(path.c_str(), F_OK) != 0; };
    // One that is ending has no descriptors any more, and is still there.
    for (int tries = 0; tries < 1000 && !is_seen() && !is_gone(); ++tries) usleep(10'000);
    all &= is_seen() || is_gone();
  }
  return all;
}

// A table of descriptors of its own: a program with one thread has that anyway.
void tables() {
  const auto raw = [](long number, long first, long second, long third) {
    return syscall(number, first, second, third);
  };
  constexpr unsigned unshares = 2;  // CLOSE_RANGE_UNSHARE
  std::printf("unshare: %d\n", unshare(CLONE_FILES));
  std::printf("seen by all: %d\n", is_seen_by_all(open("/dev/null", O_RDONLY)));
  std::printf("with folders: %d\n", unshare(CLONE_FILES | CLONE_FS));
  std::printf("seen by all: %d\n", is_seen_by_all(open("/dev/null", O_RDONLY)));
  std::printf("by number: %ld\n", raw(SYS_unshare, CLONE_FILES, 0, 0));
  std::printf("seen by all: %d\n", is_seen_by_all(open("/dev/null", O_RDONLY)));
  std::printf("close_range: %d\n", close_range(100, 120, unshares));
  std::printf("seen by all: %d\n", is_seen_by_all(open("/dev/null", O_RDONLY)));
  std::printf("by number: %ld\n", raw(SYS_close_range, 100, 120, unshares));
  std::printf("seen by all: %d\n", is_seen_by_all(open("/dev/null", O_RDONLY)));
  std::printf("what one thread has: %d\n", unshare(CLONE_VM | CLONE_SIGHAND | CLONE_THREAD));
  std::printf("by number: %ld\n", raw(SYS_unshare, CLONE_SIGHAND, 0, 0));
  std::thread second([] {
    std::printf("of two threads: %d\n", unshare(CLONE_VM));
    std::printf("of a second thread: %d\n", unshare(CLONE_FILES));
    std::printf("seen by all: %d\n", is_seen_by_all(open("/dev/null", O_RDONLY)));
  });
  second.join();
}

// The same while threads of the runtime come and go, because another process wants memory of this one.
void tables_beside_others() {
  walk memory;
  for (std::size_t i = 0; i < walk::bytes / page; ++i) memory.step();
  const pid_t asked = getpid();
  const pid_t child = fork();
  if (child == 0) {
    for (std::size_t at = 0;; at = (at + 7 * page) % walk::bytes) {
      char byte = 0;
      const iovec to{&byte, 1};
      const iovec from{memory.place(at), 1};
      if (process_vm_readv(asked, &to, 1, &from, 1, 0) != 1) _exit(1);
    }
  }
  int unseen = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (is_before(end)) {
    for (int i = 0; i < 64; ++i) memory.step();
    if (unshare(CLONE_FILES) != 0) std::abort();
    const int descriptor = open("/dev/null", O_RDONLY);
    unseen += is_seen_by_all(descriptor) ? 0 : 1;
    close(descriptor);
  }
  int status = 0;
  const bool is_at_it = waitpid(child, &status, WNOHANG) == 0;
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  std::printf("not seen by all: %d, the other one is at it: %d\n", unseen, is_at_it ? 1 : 0);
}

// A file of its own, whose text is seen after its end.
struct own_file {
  char name[32] = "/tmp/loner-XXXXXX";
  int number = mkstemp(name);
};

// What it opens gets the number of standard error, which it has closed, or never had, and not given again. `open_it()`
// returns that number. It prints the file's name.
template <typename Open>
void in_place_of_standard_error(const own_file& file, Open open_it) {
  walk memory;
  const int number = open_it();
  for (std::size_t i = 0; i < walk::bytes / page; ++i) memory.step();
  std::printf("%s %d", file.name, number == STDERR_FILENO && write(number, "mine", 4) == 4 ? 1 : 0);
}

template <typename Close>
void without_standard_error(Close close_it) {
  close_it();
  const own_file file;
  in_place_of_standard_error(file, [&] { return file.number; });
}

// Nobody asks for that number: it is the lowest that is free.
template <typename Copy>
void copied(Copy copy) {
  const int held = open("/dev/null", O_RDWR | O_CLOEXEC);  // the number, where it is free
  const own_file file;
  close(held == STDERR_FILENO ? held : STDERR_FILENO);
  in_place_of_standard_error(file, [&] { return copy(file.number); });
}

// A stream of the program's that is opened again.
void rotated() {
  close(STDERR_FILENO);
  const own_file file;
  in_place_of_standard_error(file, [&] {
    close(file.number);
    std::FILE* const stream = std::fopen(file.name, "w");
    return fileno(std::freopen(file.name, "w", stream));
  });
}

// It closes standard error, and gives it again: what the runtime writes comes to standard output.
template <typename Give>
void standard_error_again(Give give) {
  walk memory;
  close(STDERR_FILENO);
  if (!give()) std::abort();
  for (std::size_t i = 0; i < walk::bytes / page; ++i) memory.step();
}

// Functions that a handler may call, or the child of a fork: each for the first time here.
void first_calls() {
  const int copy = dup2(STDOUT_FILENO, 100);
  std::printf("dup2: %d, fcntl: %d, close: %d\n", copy, fcntl(copy, F_SETFD, FD_CLOEXEC), close(copy));
  struct stat about{};
  struct sigaction action{};
  sigset_t set{};
  std::printf("stat: %d, sigaction: %d, sigprocmask: %d, pthread_sigmask: %d\n", stat("/", &about),
              sigaction(SIGUSR1, nullptr, &action), sigprocmask(SIG_SETMASK, nullptr, &set),
              pthread_sigmask(SIG_SETMASK, nullptr, &set));
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const char* const arguments[] = {"nothing", nullptr};
    execv("/proc/nowhere", const_cast<char* const*>(arguments));
    _exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("child: %d\n", WEXITSTATUS(status));
}

// A stream with a descriptor of the runtime's, which to the program is not there: it cannot close it, nor put a file in
// its place.
void foreign_streams() {
  walk memory;
  for (std::size_t i = 0; i < walk::bytes / page; ++i) memory.step();
  for (int number = 1023; number > 3; --number) {
    std::FILE* const stream = fdopen(number, "r");
    if (stream == nullptr) continue;
    std::FILE* const second = fdopen(number, "r");
    if (std::fclose(stream) == 0) std::printf("closed %d\n", number);
    std::FILE* const again = std::freopen("/dev/null", "r", second);
    if (again == nullptr || fileno(again) == number) std::printf("in place of %d\n", number);
    if (again != nullptr) std::fclose(again);
  }
  for (std::size_t i = 0; i < walk::bytes / page; ++i) memory.step();
  std::printf("%d\n", *static_cast<unsigned char*>(memory.place(0)));
}

// The processor time that all threads of a process have used, in seconds.
double processor_seconds(const std::string& process) {
  std::FILE* const about = std::fopen((process + "/stat").c_str(), "re");
  if (about == nullptr) std::abort();
  long user = 0;
  long system = 0;
  const int found = std::fscanf(about, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system);
  std::fclose(about);
  if (found != 2) std::abort();
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Watches the parent for a second, once it says so. Returns the part of it that it used a processor, in percent:
// whether it runs cannot be seen, for where the machine is busy it may only wait for its turn.
int watch_parent(int begins) {
  const std::string parent = "/proc/" + std::to_string(getppid());
  char byte = 0;
  if (read(begins, &byte, 1) != 1) return 100;
  const auto began = std::chrono::steady_clock::now();
  const double before = processor_seconds(parent);
  usleep(1'000'000);
  const double used = processor_seconds(parent) - before;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return static_cast<int>(100 * used / took.count());
}

// As in a sandbox that may open nothing: the kernel refuses a poll(2) of one descriptor. The runtime waits all the
// same, and does not ask again and again.
void no_descriptors() {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) _exit(watch_parent(ends[0]));
  walk memory;
  for (std::size_t i = 0; i < walk::bytes / page; ++i) memory.step();
  constexpr rlimit none{0, 0};
  std::printf("setrlimit: %d\n", setrlimit(RLIMIT_NOFILE, &none));
  for (std::size_t i = 0; i < walk::bytes / page; ++i) memory.step();
  std::printf("%d\n", *static_cast<unsigned char*>(memory.place(0)));
  usleep(100'000);
  if (write(ends[1], "x", 1) != 1) std::abort();
  int status = -1;
  waitpid(child, &status, 0);
  std::printf("sleeps: %d\n", WEXITSTATUS(status) < 50 ? 1 : 0);
}

// Another mount namespace, which only a process with a root and working folder of its own may enter.
void folders() {
  const int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
  std::printf("setns: %d\n", setns(own, CLONE_NEWNS));
  std::printf("chdir: %d\n", chdir("/tmp"));
  std::printf("by number: %ld\n", syscall(SYS_setns, own, 0));
  char folder[64]{};
  std::printf("folder: %s\n", getcwd(folder, sizeof folder));
}

// The kernel merges equal pages. Those that were unchanged in local memory are written to afterwards.
void merged() {
  constexpr int set_memory_merge = 67;
  constexpr int get_memory_merge = 68;
  constexpr std::size_t bytes = 24 * mib;
  const bool is_inherited = prctl(get_memory_merge, 0, 0, 0, 0) == 1;
  std::printf("merges: %d\n", is_inherited || prctl(set_memory_merge, 1, 0, 0, 0) == 0 ? 1 : 0);
  std::printf("merges now: %d\n", prctl(get_memory_merge, 0, 0, 0, 0));
  unsigned char* const memory = map(bytes);
  unsigned char* const pressure = map(4 * bytes);
  std::memset(memory, 7, bytes);
  std::size_t wrong = 0;
  for (int round = 0; round < 3; ++round) {  // they come back writable once more after they were written
    std::memset(pressure, 8 + round, 4 * bytes);
    for (std::size_t at = 0; at < bytes; at += page) wrong += memory[at] != 7;
  }
  usleep(1'200'000);  // the kernel looks at each page twice
  for (std::size_t at = 0; at < bytes; at += page) memory[at] = static_cast<unsigned char>(at / page | 1);
  std::memset(pressure, 9, 4 * bytes);
  for (std::size_t at = 0; at < bytes; at += page) wrong += memory[at] != static_cast<unsigned char>(at / page | 1);
  std::printf("wrong: %zu\n", wrong);
  std::printf("ends merging: %d\n", prctl(set_memory_merge, 0, 0, 0, 0));
  std::printf("merges now: %d\n", prctl(get_memory_merge, 0, 0, 0, 0));
}

struct part {
  std::string_view name;
  void (*run)();
};

constexpr int wrong_number = 1 << 20;

constexpr part without[] = {
    {"closed", [] { without_standard_error([] { close(STDERR_FILENO); }); }},
    {"closed_by_number", [] { without_standard_error([] { syscall(SYS_close, STDERR_FILENO); }); }},
    {"stream_closed", [] { without_standard_error([] { std::fclose(stderr); }); }},
    {"stream_not_opened",
     [] { without_standard_error([] { return std::freopen("/proc/nowhere", "w", stderr) != nullptr; }); }},
    {"not_replaced",
     [] {
       without_standard_error([] {
         close(STDERR_FILENO);
         dup2(wrong_number, STDERR_FILENO);
         dup3(wrong_number, STDERR_FILENO, O_CLOEXEC);
         syscall(SYS_dup2, wrong_number, STDERR_FILENO);
       });
     }},
    {"copied", [] { copied([](int file) { return dup(file); }); }},
    {"copied_by_number", [] { copied([](int file) { return static_cast<int>(syscall(SYS_dup, file)); }); }},
    {"copied_by_fcntl", [] { copied([](int file) { return fcntl(file, F_DUPFD, 0); }); }},
    {"rotated", rotated}};

constexpr part again[] = {
    {"by_dup2", [] { standard_error_again([] { return dup2(STDOUT_FILENO, STDERR_FILENO) == STDERR_FILENO; }); }},
    {"by_fcntl",
     [] { standard_error_again([] { return fcntl(STDOUT_FILENO, F_DUPFD, STDERR_FILENO) == STDERR_FILENO; }); }},
    {"by_number",
     [] {
       standard_error_again([] { return syscall(SYS_fcntl, STDOUT_FILENO, F_DUPFD, STDERR_FILENO) == STDERR_FILENO; });
     }},
    {"by_freopen",
     [] { standard_error_again([] { return std::freopen("/proc/self/fd/1", "w", stderr) != nullptr; }); }}};

constexpr part parts[] = {{"numbers", numbers},
                          {"tables", tables},
                          {"tables_beside_others", tables_beside_others},
                          {"first_calls", first_calls},
                          {"foreign_streams", foreign_streams},
                          {"no_descriptors", no_descriptors},
                          {"folders", folders},
                          {"merged", merged}};

}  // namespace

int main(int count, char** arguments) {
  for (const std::span<const part> group : std::array<std::span<const part>, 3>{parts, without, again}) {
    for (const part& one : group) {
      if (count != 2 || one.name != arguments[1]) continue;
      one.run();
      return 0;
    }
  }
  return 2;
}
