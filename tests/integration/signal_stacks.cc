// Handlers that need the signal stack that the program has given: a large one, one that is kept when the handler has
// returned and entered again by a jump (as GNU Pth and QEMU make coroutines), one that a handler changes, one whose
// pages have left local memory, and one that is free as soon as a handler ends. A line each.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr int disarms = static_cast<int>(1U << 31);  // SS_AUTODISARM

stack_t new_stack(std::size_t bytes, int flags = 0) {
  stack_t stack{};
  stack.ss_sp = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack.ss_size = bytes;
  stack.ss_flags = flags;
  if (stack.ss_sp == MAP_FAILED) std::abort();
  return stack;
}

void use(const stack_t& stack) {
  if (sigaltstack(&stack, nullptr) != 0) std::printf("sigaltstack: error %d\n", errno);
}

void* current() {
  stack_t now{};
  sigaltstack(nullptr, &now);
  return now.ss_sp;
}

bool holds(const stack_t& stack, const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(stack.ss_sp) < stack.ss_size;
}

void handle(int number, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action{};
  action.sa_sigaction = handler;
  action.sa_flags = flags | SA_SIGINFO;
  sigaction(number, &action, nullptr);
}

// ---- a handler that takes 2 MiB ----

volatile long sum = 0;

__attribute__((noinline)) void descend(int levels) {
  volatile char block[4096];
  std::memset(const_cast<char*>(block), levels % 100, sizeof block);
  if (levels > 0) descend(levels - 1);
  sum = sum + block[17];
}

void deep(int, siginfo_t*, void*) {
  descend(500);
}

// Walks over more than the budget.
void evict() {
  const stack_t much = new_stack(64 * mib);
  for (std::size_t at = 0; at < much.ss_size; at += 4096) static_cast<char*>(much.ss_sp)[at] = 1;
  munmap(much.ss_sp, much.ss_size);
}

void large_stacks() {
  use(new_stack(4 * mib));
  handle(SIGUSR1, deep, SA_ONSTACK);
  for (int round = 0; round < 3; ++round) {
    raise(SIGUSR1);
    evict();
  }
  std::printf("deep: %ld\n", static_cast<long>(sum));
}

// ---- a coroutine on the stack of a handler ----

sigjmp_buf coroutine;
sigjmp_buf scheduler;

void enter(int, siginfo_t*, void*) {
  volatile char local[1024];
  std::memset(const_cast<char*>(local), 3, sizeof local);
  if (sigsetjmp(coroutine, 0) == 0) return;
  volatile int rounds = 0;
  while (rounds < 50) {
    rounds = rounds + 1;
    for (const volatile char& c : local) sum = sum + c;
    if (sigsetjmp(coroutine, 0) == 0) siglongjmp(scheduler, 1);
  }
  siglongjmp(scheduler, 2);
}

void other(int, siginfo_t*, void*) {
  descend(4);
}

void coroutines() {
  sum = 0;
  use(new_stack(mib / 4));
  handle(SIGUSR1, enter, SA_ONSTACK);
  raise(SIGUSR1);
  use(new_stack(mib / 4));
  handle(SIGUSR2, other, SA_ONSTACK);
  volatile int entered = 0;
  if (sigsetjmp(scheduler, 0) != 2) {
    entered = entered + 1;
    raise(SIGUSR2);
    siglongjmp(coroutine, 1);
  }
  std::printf("coroutine: entered %d times, %ld\n", static_cast<int>(entered), static_cast<long>(sum));
}

// ---- what a handler finds and changes ----

stack_t first;
stack_t second;

void tell(const char* what, const void* frame) {
  const void* const now = current();
  std::printf("%s: on %s, current %s\n", what,
              holds(first, frame)    ? "the first"
              : holds(second, frame) ? "the second"
                                     : "its own",
              now == first.ss_sp    ? "the first"
              : now == second.ss_sp ? "the second"
                                    : "none");
}

void change(int, siginfo_t*, void* context) {
  tell("handler", context);
  const stack_t& found = static_cast<const ucontext_t*>(context)->uc_stack;
  std::printf("found: %s, flags %x\n",
              found.ss_sp == first.ss_sp ? "the first"
              : found.ss_sp == nullptr   ? "none"
                                         : "another",
              static_cast<unsigned>(found.ss_flags));
  std::printf("change: error %d\n", sigaltstack(&second, nullptr) == 0 ? 0 : errno);
  raise(SIGUSR2);
  tell("end", context);
}

void nested(int, siginfo_t*, void* context) {
  tell("nested", context);
}

void changes() {
  second = new_stack(mib);
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  for (const int handler_flags : {0, SA_ONSTACK}) {
    for (const int stack_flags : {0, disarms, static_cast<int>(SS_DISABLE)}) {
      first = new_stack(mib, stack_flags);
      use(stack_flags == SS_DISABLE ? none : first);
      handle(SIGUSR1, change, handler_flags);
      handle(SIGUSR2, nested, SA_ONSTACK);
      std::printf("-- handler %x, stack %x\n", static_cast<unsigned>(handler_flags),
                  static_cast<unsigned>(stack_flags));
      raise(SIGUSR1);
      tell("after", &none);
      struct sigaction action{};
      sigaction(SIGUSR1, nullptr, &action);
      std::printf("action: %s, flags %x\n", action.sa_sigaction == change ? "ours" : "another",
                  static_cast<unsigned>(action.sa_flags & (SA_ONSTACK | SA_SIGINFO)));
    }
  }
}

// ---- a handler that begins on one thread and ends on another ----

ucontext_t of_worker;
ucontext_t of_handler;
std::atomic<int> step{0};

void move_away(int, siginfo_t*, void*) {
  swapcontext(&of_handler, &of_worker);
  // On the other thread from here on.
}

void on_coroutine() {
  raise(SIGUSR1);
  for (int round = 0; round < 4; ++round) evict();  // both threads miss, on signal stacks that must be two
  step = 2;
  pause();  // what started it is gone
}

void moved_handlers() {
  handle(SIGUSR1, move_away, 0);
  handle(SIGUSR2, nested, 0);
  static ucontext_t start;
  getcontext(&start);
  const stack_t stack = new_stack(mib);
  start.uc_stack = stack;
  makecontext(&start, on_coroutine, 0);
  std::thread begins([] {
    swapcontext(&of_worker, &start);
    step = 1;
    while (step != 3) evict();
  });
  while (step != 1) std::this_thread::yield();
  std::thread ends([] { setcontext(&of_handler); });
  while (step != 2) std::this_thread::yield();
  step = 3;
  begins.join();
  ends.detach();
  std::puts("a handler went to another thread");
}

// ---- a handler whose frame has left when it ends ----

void send_away(int, siginfo_t*, void*) {
  evict();
}

void frames_that_leave() {
  handle(SIGUSR1, send_away, SA_ONSTACK);
  const stack_t whole = new_stack(mib / 4);
  // The frame takes 1 KiB to 4 KiB, on one page or on two.
  for (const std::size_t cut : {0, 512, 1024, 1792, 2560, 3328}) {
    stack_t stack = whole;
    stack.ss_size -= cut;
    use(stack);
    raise(SIGUSR1);
  }
  std::puts("frames left");
}

// ---- signals that come while a handler ends, with a stack that is free again then ----

volatile sig_atomic_t alarms = 0;

void count_alarm(int, siginfo_t*, void*) {
  alarms = alarms + 1;
}

void nothing(int, siginfo_t*, void*) {}

void signals_at_the_end() {
  use(new_stack(mib / 4, disarms));
  handle(SIGUSR1, nothing, SA_ONSTACK);
  handle(SIGALRM, count_alarm, SA_ONSTACK);
  alarms = 0;
  const itimerval often{{0, 50}, {0, 50}};
  setitimer(ITIMER_REAL, &often, nullptr);
  for (int round = 0; round < 20'000 || alarms < 100; ++round) raise(SIGUSR1);
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  std::puts("handlers ended");
}

}  // namespace

int main() {
  large_stacks();
  coroutines();
  changes();
  frames_that_leave();
  signals_at_the_end();
  moved_handlers();
  std::fflush(stdout);
  _exit(0);
}
