// waiter masks|vfork|handler|exec: waits with a full signal mask, or for children that run on its own stack, or makes
// an exec on a small one, by system call instructions of its own; waiter clone|small: for children with memory of their
// own that run on their parent's stack, or on small ones, by name. Its output is the same wherever it runs.
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

using registers = std::array<long, 6>;

// Returns -errno on failure, as the kernel does; `lost` counts registers that came back with something else.
inline __attribute__((always_inline)) long call(long number, const registers& given, int* lost = nullptr) {
  long result = number;
  registers after = given;
  register long r10 asm("r10") = given[3];
  register long r8 asm("r8") = given[4];
  register long r9 asm("r9") = given[5];
  asm volatile("syscall"
               : "+a"(result), "+D"(after[0]), "+S"(after[1]), "+d"(after[2]), "+r"(r10), "+r"(r8), "+r"(r9)
               :
               : "rcx", "r11", "memory");
  after[3] = r10;
  after[4] = r8;
  after[5] = r9;
  if (lost != nullptr) *lost += after != given;
  return result;
}

template <typename Value>
long address(Value* pointer) {
  return reinterpret_cast<long>(pointer);
}

volatile int handled = 0;

void on_alarm(int) {
  handled = handled + (call(SYS_getppid, {}) == getppid() ? 1 : 1000);
}

void start_alarm() {
  const itimerval soon{{0, 20'000}, {0, 20'000}};
  setitimer(ITIMER_REAL, &soon, nullptr);
}

void stop_alarm() {
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
}

// Each call once until its time is over, with all signals blocked, and once until a signal, with all others blocked.
void wait_with_masks() {
  constexpr long mask_bytes = sizeof(std::uint64_t);
  constexpr long epoll_pwait2 = 441;
  signal(SIGALRM, on_alarm);
  const int poll_file = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  pollfd none{-1, 0, 0};
  std::uint64_t all = ~std::uint64_t{0};
  std::uint64_t others = ~(std::uint64_t{1} << (SIGALRM - 1));
  for (const bool interrupted : {false, true}) {
    std::uint64_t* const mask = interrupted ? &others : &all;
    const auto wait = [&](const char* name, long number, const registers& given) {
      int lost = 0;
      handled = 0;
      if (interrupted) start_alarm();
      const long result = call(number, given, &lost);
      stop_alarm();
      std::printf("%s: %ld, %d registers lost, handled: %s\n", name, result, lost,
                  handled == 0     ? "no"
                  : handled < 1000 ? "yes"
                                   : "wrong");
    };
    timespec time{interrupted ? 60 : 0, 10'000'000};
    wait("ppoll", SYS_ppoll, {address(&none), 1, address(&time), address(mask), mask_bytes, 77});
    time = {interrupted ? 60 : 0, 10'000'000};
    const long pair[] = {address(mask), mask_bytes};
    wait("pselect6", SYS_pselect6, {0, 0, 0, 0, address(&time), address(pair)});
    wait("epoll_pwait", SYS_epoll_pwait,
         {poll_file, address(&event), 1, interrupted ? 60'000 : 10, address(mask), mask_bytes});
    time = {interrupted ? 60 : 0, 10'000'000};
    wait("epoll_pwait2", epoll_pwait2, {poll_file, address(&event), 1, address(&time), address(mask), mask_bytes});
    if (interrupted) wait("rt_sigsuspend", SYS_rt_sigsuspend, {address(mask), mask_bytes, 3, 4, 5, 6});
  }
}

// Like a function of the child's that needs much of the stack.
__attribute__((noinline)) void use_stack(int value) {
  volatile char room[65'536];
  for (std::size_t i = 0; i < sizeof room; ++i) room[i] = static_cast<char>(value);
}

__attribute__((noinline)) void start_children() {
  char* const arguments[] = {const_cast<char*>("true"), nullptr};
  char* const environment[] = {nullptr};
  for (int round = 0; round < 6; ++round) {
    const bool by_clone = round % 2 == 1;
    const volatile int expected = round + 1000;
    const long child = by_clone ? call(SYS_clone, {CLONE_VM | CLONE_VFORK | SIGCHLD}) : call(SYS_vfork, {});
    if (child == 0) {
      use_stack(round);
      call(SYS_getppid, {});
      call(SYS_execve, {address("/nowhere"), address(arguments), address(environment)});
      if (round >= 2) call(SYS_execve, {address("/bin/true"), address(arguments), address(environment)});
      call(SYS_exit_group, {3});
    }
    int status = 1;
    const bool found = child > 0 && waitpid(static_cast<pid_t>(child), &status, 0) == child;
    std::printf("child: %s, status %d, %d\n", found ? "found" : "lost", status, expected);
    std::fflush(stdout);
  }
}

void set_signal_stack() {
  static std::array<char, 262'144> memory;
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  sigaltstack(&stack, nullptr);
}

void start_children_in_handler() {
  set_signal_stack();
  start_children();
  struct sigaction action{};
  action.sa_handler = [](int) { start_children(); };
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, nullptr);
  raise(SIGUSR1);
}

// An exec that fails, on a stack with little room, under a limit on memory. Below it is other memory.
void exec_on_small_stack() {
  constexpr std::size_t room_bytes = 512;
  static std::array<char, 65'536> memory;
  set_signal_stack();
  const rlimit limit{rlim_t{1} << 30, RLIM_INFINITY};
  std::printf("setrlimit: %d\n", setrlimit(RLIMIT_AS, &limit));
  memory.fill('x');
  char* const arguments[] = {nullptr};
  for (int round = 0; round < 3; ++round) {
    long result = SYS_execve;
    asm volatile("movq %%rsp, %%rbx\n movq %[top], %%rsp\n syscall\n movq %%rbx, %%rsp"
                 : "+a"(result)
                 : [top] "r"(memory.data() + memory.size()), "D"("/nowhere"), "S"(arguments), "d"(arguments)
                 : "rbx", "rcx", "r11", "memory");
    const auto changed = std::count_if(memory.begin(), memory.end() - room_bytes, [](char c) { return c != 'x'; });
    std::printf("%ld, %zu bytes changed\n", result, static_cast<std::size_t>(changed));
  }
}

constexpr std::size_t levels = 100;

__attribute__((noinline)) int use_much_stack(std::size_t level) {
  volatile char block[1024];
  std::memset(const_cast<char*>(block), static_cast<int>(level), sizeof block);
  const int below = level == 0 ? 0 : use_much_stack(level - 1);
  return below + (block[500] == static_cast<char>(level) ? 0 : 1);
}

// The child's stack begins in this frame, so it writes over all frames that the call had. D's collector forks so.
__attribute__((noinline)) void clone_on_own_stack() {
  alignas(16) char room[256];
  static int wanted = 42;
  const pid_t child = clone([](void* code) { return use_much_stack(levels) == 0 ? *static_cast<int*>(code) : 1; },
                            room + sizeof room, SIGCHLD, &wanted);
  int status = -1;
  const bool found = child > 0 && waitpid(child, &status, 0) == child;
  std::printf("clone: %s, status %x\n", found ? "found" : "lost", static_cast<unsigned>(status));
}

// The room that the child has: a page, and no memory below it.
constexpr std::size_t small_bytes = 4096;
alignas(small_bytes) char small_stack[2 * small_bytes];

// The function returns, or ends the process itself.
void clone_on_small_stack() {
  set_signal_stack();  // a signal may take more
  static_cast<void>(mprotect(small_stack, small_bytes, PROT_NONE));
  static_cast<void>(syscall(SYS_getpid));  // its name is found now, on a stack with room for that
  const auto returns = [](void*) { return 42; };
  const auto ends = [](void*) -> int { return static_cast<int>(syscall(SYS_exit_group, 43)); };
  for (int (*const body)(void*) : {static_cast<int (*)(void*)>(returns), static_cast<int (*)(void*)>(ends)}) {
    const pid_t child = clone(body, small_stack + sizeof small_stack, SIGCHLD, nullptr);
    int status = -1;
    const bool found = child > 0 && waitpid(child, &status, 0) == child;
    std::printf("clone: %s, status %x\n", found ? "found" : "lost", static_cast<unsigned>(status));
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view part = count > 1 ? arguments[1] : "";
  if (part == "masks") wait_with_masks();
  if (part == "vfork") start_children();
  if (part == "handler") start_children_in_handler();
  if (part == "clone") clone_on_own_stack();
  if (part == "small") clone_on_small_stack();
  if (part == "exec") exec_on_small_stack();
  std::puts("done");
}
