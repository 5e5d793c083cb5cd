// A program that goes past the C library, or ends threads and processes in unusual ways: `outsider PART WAY`. Its
// output is the same wherever it runs. WAY says how system calls are made: "asm" by instructions of its own, "name" by
// the C library's syscall().
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t mib = std::size_t{1} << 20;

bool by_name = false;

// Returns -errno on failure, as the kernel does.
long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
#if defined(__x86_64__)
  if (!by_name) {
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = e;
    register long r9 asm("r9") = f;
    long result = number;
    asm volatile("syscall"
                 : "+a"(result)
                 : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return result;
  }
#endif
  const long result = syscall(number, a, b, c, d, e, f);
  return result == -1 ? -errno : result;
}

long address(const void* pointer) {
  return reinterpret_cast<long>(pointer);
}

unsigned char* map(std::size_t bytes) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) std::abort();
  return static_cast<unsigned char*>(mapped);
}

std::uint64_t value_of(std::size_t word) {
  return word * 0x9e3779b97f4a7c15 + 1;
}

// More than the budget, so its first bytes have left by the end.
struct pattern {
  std::uint64_t* words;
  std::size_t count;

  explicit pattern(std::size_t bytes) : words(reinterpret_cast<std::uint64_t*>(map(bytes))), count(bytes / 8) {
    for (std::size_t i = 0; i < count; ++i) words[i] = value_of(i);
  }
  [[nodiscard]] std::size_t wrong() const {
    std::size_t bad = 0;
    for (std::size_t i = 0; i < count; ++i) bad += words[i] != value_of(i);
    return bad;
  }
};

// The exit code of a child, which must end within a minute.
int code_of(pid_t child) {
  if (child < 0) return -1;
  for (int i = 0; i < 6000; ++i) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG | __WALL) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
    usleep(10000);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, __WALL);
  return -2;
}

void leave_in_vfork_children() {
  const pattern data(48 * mib);
  for (int i = 0; i < 3; ++i) {
    // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork)
    const pid_t child = vfork();
    if (child == 0) _exit(3);
    std::printf("child %d, ", code_of(child));
  }
  std::printf("%zu wrong\n", data.wrong());
}

// ---- memory ----

std::size_t not_zero(const unsigned char* first, std::size_t bytes) {
  std::size_t bad = 0;
  for (std::size_t i = 0; i < bytes; ++i) bad += first[i] != 0;
  return bad;
}

// Drops every third megabyte; the others stay.
void drop() {
  const pattern data(48 * mib);
  auto* const bytes = reinterpret_cast<unsigned char*>(data.words);
  std::size_t bad = 0;
  for (std::size_t at = 0; at < 48 * mib; at += 3 * mib)
    bad += call(SYS_madvise, address(bytes + at), mib, MADV_DONTNEED) != 0;
  for (std::size_t at = 0; at < 48 * mib; at += mib) {
    if (at % (3 * mib) == 0) {
      bad += not_zero(bytes + at, mib);
      continue;
    }
    for (std::size_t i = at / 8; i < (at + mib) / 8; ++i) bad += data.words[i] != value_of(i);
  }
  std::printf("%zu wrong after dropping\n", bad);
}

// Unmaps, maps over, moves, protects. The rest is as it was.
void rearrange() {
  const pattern data(48 * mib);
  auto* const bytes = reinterpret_cast<unsigned char*>(data.words);
  std::size_t bad = 0;
  bad += call(SYS_munmap, address(bytes + 8 * mib), mib) != 0;
  const long again = call(SYS_mmap, address(bytes + 8 * mib), mib, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  bad += again != address(bytes + 8 * mib);
  bad += not_zero(bytes + 8 * mib, mib);
  bad += call(SYS_mmap, address(bytes + 12 * mib), mib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
              -1, 0) != address(bytes + 12 * mib);
  bad += not_zero(bytes + 12 * mib, mib);
  bad += call(SYS_mprotect, address(bytes + 20 * mib), mib, PROT_NONE) != 0;
  bad += call(SYS_mprotect, address(bytes + 20 * mib), mib, PROT_READ) != 0;
  for (std::size_t i = 0; i < data.count; ++i) {
    const std::size_t at = i * 8 / mib;
    if (at != 8 && at != 12) bad += data.words[i] != value_of(i);
  }
  std::printf("%zu wrong after mapping over\n", bad);
  const pattern other(48 * mib);
  const long moved = call(SYS_mremap, address(other.words), 48 * mib, 96 * mib, MREMAP_MAYMOVE);
  if (moved < 0 && moved > -4096) {
    std::printf("mremap fails with %ld\n", -moved);
    return;
  }
  const auto* const words = reinterpret_cast<const std::uint64_t*>(moved);
  bad = 0;
  for (std::size_t i = 0; i < other.count; ++i) bad += words[i] != value_of(i);
  bad += not_zero(reinterpret_cast<const unsigned char*>(words) + 48 * mib, 48 * mib);
  std::printf("%zu wrong after moving\n", bad);
}

// The program's own mappings: more than the budget, and given back.
void map_raw() {
  for (int round = 0; round < 4; ++round) {
    const long mapped = call(SYS_mmap, 0, 40 * mib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* const words = reinterpret_cast<std::uint64_t*>(mapped);
    const std::size_t count = 40 * mib / 8;
    std::size_t bad = 0;
    for (std::size_t i = 0; i < count; ++i) words[i] = value_of(i);
    for (std::size_t i = 0; i < count; ++i) bad += words[i] != value_of(i);
    std::printf("%zu wrong, unmapped with %ld\n", bad, call(SYS_munmap, mapped, 40 * mib));
  }
}

// ---- children ----

[[noreturn]] void end_child(const pattern& data) {
  call(SYS_exit_group, data.wrong() == 0 ? 7 : 8);
  std::abort();
}

int check_in_child(void* data) {
  return static_cast<const pattern*>(data)->wrong() == 0 ? 7 : 8;
}

void make_children() {
  pattern data(48 * mib);
  pid_t child = 0;
#if defined(SYS_fork)
  child = static_cast<pid_t>(call(SYS_fork));
  if (child == 0) end_child(data);
  std::printf("fork %d\n", code_of(child));
#endif
  child = static_cast<pid_t>(call(SYS_clone, SIGCHLD));
  if (child == 0) end_child(data);
  std::printf("clone %d\n", code_of(child));
  std::uint64_t asked[8] = {0, 0, 0, 0, SIGCHLD};
  child = static_cast<pid_t>(call(SYS_clone3, address(asked), sizeof asked));
  if (child == 0) end_child(data);
  std::printf("clone3 %d\n", code_of(child));
  child = _Fork();
  if (child == 0) end_child(data);
  std::printf("_Fork %d\n", code_of(child));
  // On a stack that is far by the time the child runs.
  unsigned char* const stack = map(mib);
  std::memset(stack, 1, mib);
  std::size_t wrong = data.wrong();
  child = clone(check_in_child, stack + mib, SIGCHLD, &data);
  std::printf("clone by name %d\n", code_of(child));
  wrong += data.wrong();
  std::printf("%zu wrong\n", wrong);
}

// A child that shares its parent's descriptors: served, or refused, but never at the cost of the parent's bytes.
void share_descriptors() {
  pattern data(48 * mib);
  const auto child = static_cast<pid_t>(call(SYS_clone, CLONE_FILES | SIGCHLD));
  if (child == 0) end_child(data);
  std::fprintf(stderr, "clone %d\n", child < 0 ? child : code_of(child));
  std::size_t wrong = data.wrong();
  for (std::size_t i = 0; i < data.count; ++i) data.words[i] = value_of(i);
  wrong += data.wrong();
  std::printf("%zu wrong\n", wrong);
}

// As daemons do, and children before they start another program. No descriptor of the runtime may be lost.
void close_descriptors() {
  pattern data(48 * mib);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    call(SYS_close_range, 3, ~0U, 0);
    end_child(data);
  }
  std::printf("child %d\n", code_of(child));
  for (long number = 3; number < 1100; ++number) call(SYS_close, number);
  std::size_t wrong = data.wrong();
  const auto file = static_cast<int>(call(SYS_open, address("/dev/null"), O_RDWR));
  for (long number = 3; number < 1100; ++number) {
    if (number != file) call(SYS_dup3, file, number, O_CLOEXEC);
#if defined(SYS_dup2)
    if (number != file) call(SYS_dup2, file, number);
#endif
  }
  wrong += data.wrong();
  const long closed = call(SYS_close_range, 3, ~0U, 0);
  wrong += data.wrong();
  std::printf("%zu wrong, %ld\n", wrong, closed);
  std::printf("%ld, and of what is not there %ld\n", call(SYS_dup3, 1, 1, 0), call(SYS_close, 700));
}

// ---- signals ----

volatile int handled = 0;

// With every signal blocked, as by its mask.
void call_in_handler(int) {
  handled = handled + (call(SYS_getpid) == getpid() ? 1 : 0);
  const long mapped = call(SYS_mmap, 0, mib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(reinterpret_cast<void*>(mapped), 1, mib);
  handled = handled + (call(SYS_munmap, mapped, mib) == 0 ? 1 : 0);
}

void* call_with_signals_blocked(void* data) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  auto* const bytes = static_cast<unsigned char*>(data);
  std::size_t bad = 0;
  for (std::size_t at = 0; at < 8 * mib; at += mib) {
    bad += call(SYS_madvise, address(bytes + at), mib, MADV_DONTNEED) != 0;
    bad += not_zero(bytes + at, mib);
  }
  // The same mask, set by an instruction of its own.
  std::uint64_t mask = ~std::uint64_t{0};
  std::uint64_t before = 0;
  bad += call(SYS_rt_sigprocmask, SIG_SETMASK, address(&mask), address(&before), sizeof mask) != 0;
  bad += (before >> (SIGUSR1 - 1) & 1) != 1;
  bad += call(SYS_getppid) != getppid();
  std::printf("%zu wrong with signals blocked\n", bad);
  return nullptr;
}

void call_beside_signals() {
  const pattern data(48 * mib);
  struct sigaction action{};
  action.sa_handler = call_in_handler;
  sigfillset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
  signal(SIGUSR2, call_in_handler);
  for (int i = 0; i < 10; ++i) raise(i % 2 == 0 ? SIGUSR1 : SIGUSR2);
  std::printf("handled %d\n", handled);
  pthread_t thread;
  pthread_create(&thread, nullptr, call_with_signals_blocked, data.words);
  pthread_join(thread, nullptr);
  // A handler of the program's own for the signal by which raw calls may be noticed.
  handled = 0;
  signal(SIGSYS, call_in_handler);
  raise(SIGSYS);
  std::printf("handled %d\n", handled);
  signal(SIGSYS, SIG_DFL);
  const pid_t child = fork();
  if (child == 0) {
    auto* const bytes = reinterpret_cast<unsigned char*>(data.words) + 16 * mib;
    call(SYS_madvise, address(bytes), mib, MADV_DONTNEED);
    std::_Exit(not_zero(bytes, mib) == 0 ? 7 : 8);
  }
  std::printf("child %d\n", code_of(child));
}

std::atomic<bool> enough{false};

void* change_actions(void*) {
  struct sigaction before{};
  const struct sigaction action{};
  while (!enough.load()) {
    if (sigaction(SIGSYS, &action, &before) != 0) std::abort();
  }
  return nullptr;
}

// Threads that meet at the action of one signal, the one by which calls are noticed, and children that find it so.
void change_actions_at_once() {
  pthread_t threads[4];
  for (pthread_t& thread : threads) pthread_create(&thread, nullptr, change_actions, nullptr);
  int good = 0;
  for (int i = 0; i < 200; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      struct sigaction found{};
      std::_Exit(sigaction(SIGSYS, nullptr, &found) == 0 && found.sa_handler == SIG_DFL ? 7 : 8);
    }
    good += code_of(child) == 7;
  }
  enough.store(true);
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  std::printf("%d good children\n", good);
}

// ---- threads ----

void* end_late(void*) {
  usleep(200000);
  std::puts("the last thread ends");
  return nullptr;
}

void say_goodbye() {
  std::puts("goodbye");
}

// The process lives until its last thread ends.
[[noreturn]] void end_the_main_thread() {
  std::atexit(say_goodbye);
  pthread_t thread;
  pthread_create(&thread, nullptr, end_late, nullptr);
  pthread_detach(thread);
  pthread_exit(nullptr);
}

struct shared_mutex {
  pthread_mutex_t robust;
};

void* die_with_a_mutex(void* context) {
  pthread_mutex_lock(&static_cast<shared_mutex*>(context)->robust);
  // Memory that is far by the time the thread ends.
  const pattern other(48 * mib);
  std::printf("%zu wrong\n", other.wrong());
  munmap(other.words, 48 * mib);
  return nullptr;
}

// The kernel marks a mutex whose owner has died, wherever it lies.
void die_with_robust_mutexes() {
  for (int round = 0; round < 3; ++round) {
    auto* const mutex = reinterpret_cast<shared_mutex*>(map(page));
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex->robust, &attributes);
    pthread_t thread;
    pthread_create(&thread, nullptr, die_with_a_mutex, mutex);
    pthread_join(thread, nullptr);
    timespec limit{};
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 5;
    const int result = pthread_mutex_timedlock(&mutex->robust, &limit);
    std::printf("%s\n", result == EOWNERDEAD ? "its owner died" : std::strerror(result));
  }
}

// A list that the program gives to the kernel itself, and that is nonsense by the time the thread ends.
struct nonsense {
  void* next;
  long offset;
  void* pending;
};

void* leave_nonsense(void* list) {
  const long result = call(SYS_set_robust_list, address(list), sizeof(nonsense));
  return reinterpret_cast<void*>(result);
}

void end_with_nonsense() {
  static nonsense lists[3];
  lists[0] = {&lists[0], std::numeric_limits<long>::min(), &lists[1]};
  lists[1] = {reinterpret_cast<void*>(0x123450), 8, nullptr};
  lists[2] = {&lists[1], 16, reinterpret_cast<void*>(-8)};
  void* const nowhere = reinterpret_cast<void*>(0x1000);
  for (void* list :
       {static_cast<void*>(&lists[0]), static_cast<void*>(&lists[1]), static_cast<void*>(&lists[2]), nowhere}) {
    pthread_t thread;
    void* result = nullptr;
    if (pthread_create(&thread, nullptr, leave_nonsense, list) != 0) std::abort();
    pthread_join(thread, &result);
    std::printf("ended, %ld\n", reinterpret_cast<long>(result));
  }
}

// A child that asks for its own rights again and again, for longer than the runtime takes to settle in it.
void ask_for_rights() {
  const pid_t child = fork();
  if (child == 0) {
    timespec start{};
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
      if (setresuid(getuid(), geteuid(), geteuid()) != 0) _exit(1);
      clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < 4);
    _exit(7);
  }
  std::printf("child %d\n", code_of(child));
}

void* use_memory(void* context) {
  volatile char on_stack[20 * page];
  for (std::size_t i = 0; i < sizeof on_stack; i += page) on_stack[i] = static_cast<char>(i / page);
  const pattern other(48 * mib);
  std::size_t bad = other.wrong();
  for (std::size_t i = 0; i < sizeof on_stack; i += page) bad += on_stack[i] != static_cast<char>(i / page);
  munmap(other.words, 48 * mib);
  *static_cast<std::size_t*>(context) = bad;
  return nullptr;
}

// Threads on stacks that the program took from its own memory.
void run_on_own_stacks() {
  constexpr int threads = 3;
  for (int round = 0; round < 2; ++round) {
    pthread_t thread[threads];
    std::size_t bad[threads];
    unsigned char* stacks[threads];
    for (int i = 0; i < threads; ++i) {
      stacks[i] = map(mib);
      std::memset(stacks[i], 1, mib);
      pthread_attr_t attributes;
      pthread_attr_init(&attributes);
      pthread_attr_setstack(&attributes, stacks[i], mib);
      bad[i] = 1;
      if (pthread_create(&thread[i], &attributes, use_memory, &bad[i]) != 0) std::abort();
    }
    for (int i = 0; i < threads; ++i) {
      pthread_join(thread[i], nullptr);
      std::printf("thread %d: %zu wrong\n", i, bad[i]);
      munmap(stacks[i], mib);
    }
  }
}

std::uint64_t sum_of(const unsigned char* bytes, std::size_t count) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum = sum * 31 + bytes[i];
  return sum;
}

// process_vm_readv and process_vm_writev of this very process, both sides far. The first part that cannot be touched
// ends them.
void transfer_within_itself() {
  const pattern data(48 * mib);
  auto* const bytes = reinterpret_cast<unsigned char*>(data.words);
  unsigned char* const copy = map(4 * mib);
  const long self = call(SYS_getpid);
  const auto transfer = [self](const char* name, long number, const iovec* to, long to_count, const iovec* from,
                               long from_count, long flags = 0) {
    std::printf("%s: %ld\n", name, call(number, self, address(to), to_count, address(from), from_count, flags));
  };
  const iovec whole{copy, 4 * mib};
  const iovec much{bytes + 12345, 4 * mib};
  transfer("much", SYS_process_vm_readv, &whole, 1, &much, 1);
  std::printf("sum %lx\n", sum_of(copy, 4 * mib));
  const iovec pieces[] = {{copy + 3, 70000}, {copy + 300000, 0}, {copy + 200000, 1}, {copy + mib, 2 * mib}};
  const iovec others[] = {{bytes + 20 * mib, 1}, {bytes, 100 * page}, {bytes + 40 * mib + 7, mib}, {bytes, 0}};
  transfer("pieces", SYS_process_vm_readv, pieces, 4, others, 4);
  transfer("pieces written", SYS_process_vm_writev, others + 2, 1, pieces, 4);
  std::printf("sum %lx\n", sum_of(copy, 4 * mib));
  mprotect(bytes + 16 * mib, page, PROT_NONE);
  munmap(bytes + 24 * mib + page, page);
  mprotect(bytes + 32 * mib, mib, PROT_READ);
  const iovec closed{bytes + 16 * mib, page};
  const iovec before_closed{bytes + 16 * mib - page - 5, 4 * page};
  const iovec before_hole{bytes + 24 * mib + 9, 4 * page};
  const iovec read_only{bytes + 32 * mib, mib};
  transfer("without access", SYS_process_vm_readv, &whole, 1, &closed, 1);
  transfer("partly without access", SYS_process_vm_readv, &whole, 1, &before_closed, 1);
  transfer("to a hole", SYS_process_vm_readv, &before_hole, 1, &much, 1);
  transfer("from a hole", SYS_process_vm_readv, &whole, 1, &before_hole, 1);
  transfer("read-only", SYS_process_vm_readv, &whole, 1, &read_only, 1);
  transfer("read-only written", SYS_process_vm_writev, &whole, 1, &read_only, 1);
  transfer("flags", SYS_process_vm_readv, &whole, 1, &much, 1, 1);
  transfer("too many", SYS_process_vm_readv, &whole, 1, &much, 1025);
  std::printf("sum %lx\n", sum_of(copy, 4 * mib));
}

#if defined(__x86_64__)
// Every byte of the registers that a system call keeps, wherever the stack ends.
__attribute__((target("avx"), noinline)) std::size_t lost_registers(std::size_t shift) {
  alignas(32) static unsigned char before[16][32];
  alignas(32) static unsigned char after[16][32];
  for (std::size_t i = 0; i < sizeof before; ++i) before[i / 32][i % 32] = static_cast<unsigned char>(i * 7 + shift);
  long number = SYS_getppid;
  asm volatile(
      "vmovdqa (%[from]), %%ymm8\n vmovdqa 32(%[from]), %%ymm9\n vmovdqa 64(%[from]), %%ymm10\n"
      "vmovdqa 96(%[from]), %%ymm11\n vmovdqa 128(%[from]), %%ymm12\n vmovdqa 160(%[from]), %%ymm13\n"
      "vmovdqa 192(%[from]), %%ymm14\n vmovdqa 224(%[from]), %%ymm15\n"
      "movq %%rsp, %%rbx\n subq $512, %%rsp\n andq $-64, %%rsp\n subq %[shift], %%rsp\n"
      "syscall\n"
      "movq %%rbx, %%rsp\n"
      "vmovdqa %%ymm8, (%[to])\n vmovdqa %%ymm9, 32(%[to])\n vmovdqa %%ymm10, 64(%[to])\n"
      "vmovdqa %%ymm11, 96(%[to])\n vmovdqa %%ymm12, 128(%[to])\n vmovdqa %%ymm13, 160(%[to])\n"
      "vmovdqa %%ymm14, 192(%[to])\n vmovdqa %%ymm15, 224(%[to])\n vzeroupper\n"
      : "+a"(number)
      : [from] "r"(before[8]), [to] "r"(after[8]), [shift] "r"(shift)
      : "rbx", "rcx", "r11", "memory", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  return static_cast<std::size_t>(std::memcmp(before[8], after[8], 8 * sizeof before[0]) != 0);
}

__attribute__((target("avx512f"), noinline)) std::size_t lost_wide_registers(std::size_t shift) {
  alignas(64) static unsigned char before[64];
  alignas(64) static unsigned char after[64];
  for (std::size_t i = 0; i < sizeof before; ++i) before[i] = static_cast<unsigned char>(i * 7 + shift);
  long number = SYS_getppid;
  asm volatile(
      "vmovdqa64 (%[from]), %%zmm30\n vmovdqa64 %%zmm30, %%zmm31\n"
      "movq %%rsp, %%rbx\n subq $512, %%rsp\n andq $-64, %%rsp\n subq %[shift], %%rsp\n"
      "syscall\n"
      "movq %%rbx, %%rsp\n"
      "vpxorq %%zmm30, %%zmm31, %%zmm30\n vpxorq (%[from]), %%zmm31, %%zmm31\n vporq %%zmm30, %%zmm31, %%zmm31\n"
      "vmovdqa64 %%zmm31, (%[to])\n vzeroupper\n"
      : "+a"(number)
      : [from] "r"(before), [to] "r"(after), [shift] "r"(shift)
      : "rbx", "rcx", "r11", "memory", "xmm30", "xmm31");
  for (const unsigned char residency : after) {
    if (residency != 0) return 1;
  }
  return 0;
}
#endif

void keep_registers() {
  std::size_t lost = 0;
#if defined(__x86_64__)
  for (std::size_t shift = 0; shift < 64; shift += 8) {
    if (__builtin_cpu_supports("avx")) lost += lost_registers(shift);
    if (__builtin_cpu_supports("avx512f")) lost += lost_wide_registers(shift);
  }
#endif
  std::printf("%zu times other registers\n", lost);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  const std::string_view part = arguments[1];
  by_name = std::strcmp(arguments[2], "name") == 0;
  if (part == "vfork") leave_in_vfork_children();
  if (part == "drop") drop();
  if (part == "rearrange") rearrange();
  if (part == "map") map_raw();
  if (part == "children") make_children();
  if (part == "descriptors") share_descriptors();
  if (part == "close") close_descriptors();
  if (part == "signals") call_beside_signals();
  if (part == "actions") change_actions_at_once();
  if (part == "main-thread") end_the_main_thread();
  if (part == "robust") die_with_robust_mutexes();
  if (part == "nonsense") end_with_nonsense();
  if (part == "rights") ask_for_rights();
  if (part == "stacks") run_on_own_stacks();
  if (part == "registers") keep_registers();
  if (part == "within") transfer_within_itself();
  if (part == "exit") {
    const pattern data(48 * mib);
    std::printf("%zu wrong\n", data.wrong());
    std::fflush(stdout);
    call(SYS_exit_group, 5);
  }
  return 0;
}
