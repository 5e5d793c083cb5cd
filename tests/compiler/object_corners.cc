// What programs do around reads of objects (-ffar-objects), one thing by argument:
//   forks      a signal handler interrupts a read and forks; the child goes on with the read
//   jumps      a signal handler interrupts a read and jumps out of it
//   protected  what was read before cannot be read any more: PROT_NONE, a protection key
//   stack      how many bytes of the program's stack such reads take
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::size_t count = std::size_t{4} << 20;
constexpr std::size_t picked = 10'000;
std::uint64_t* numbers;

std::size_t place_of(std::size_t i) {
  return i * 0x9e3779b97f4a7c15 >> 42;
}

// The loop looks ahead.
__attribute__((noinline)) std::size_t wrong_ones(std::size_t first, std::size_t end) {
  std::size_t wrong = 0;
  for (std::size_t i = first; i < end; ++i) wrong += numbers[place_of(i)] != place_of(i) * 3;
  return wrong;
}

// This one does not: each read is on its own.
__attribute__((noinline)) bool is_right(std::size_t i) {
  return numbers[place_of(i)] == place_of(i) * 3;
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*), int flags = 0) {
  struct sigaction action{};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  sigaction(signal, &action, nullptr);
}

// Once.
void interrupt_in(long microseconds) {
  const itimerval soon{.it_interval = {0, 0}, .it_value = {0, microseconds}};
  setitimer(ITIMER_REAL, &soon, nullptr);
}

std::sig_atomic_t volatile interruptions = 0;
std::sig_atomic_t volatile failures = 0;
bool volatile is_child = false;

bool forks() {
  handle(SIGALRM, [](int, siginfo_t*, void*) {
    interruptions = interruptions + 1;
    const pid_t child = fork();
    is_child = child == 0;
    if (child == 0) return;
    int status = -1;
    while (waitpid(child, &status, 0) != child) continue;
    if (child < 0 || status != 0) failures = failures + 1;
    interrupt_in(100 + interruptions * 37 % 100);
  });
  interrupt_in(100);
  std::size_t wrong = 0;
  for (std::size_t of_child = 0; interruptions < 40 && of_child < 20;) {
    for (std::size_t i = 0; i < 100; ++i) wrong += is_right(i * 7 % picked) ? 0 : 1;
    if (is_child) ++of_child;
  }
  interrupt_in(0);
  if (is_child) _exit(wrong == 0 ? 0 : 1);
  return wrong == 0 && failures == 0;
}

sigjmp_buf out;

bool jumps() {
  handle(SIGALRM, [](int, siginfo_t*, void*) {
    interruptions = interruptions + 1;
    siglongjmp(out, 1);
  });
  static std::size_t wrong = 0;
  static_cast<void>(sigsetjmp(out, 1));
  interrupt_in(100 + interruptions * 37 % 100);
  while (interruptions < 1000) wrong += wrong_ones(0, picked);
  interrupt_in(0);
  return wrong == 0;
}

// The last fault, and what its handler does so that the access succeeds.
char* volatile faulted = nullptr;
void (*allow)(void* page) = nullptr;

// Reads all that was read before. Returns how many faults there were, all of them in the area; 0 if one was elsewhere.
std::size_t faults_in(std::size_t first, std::size_t area_bytes) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < picked; ++i) {
    auto* const address = reinterpret_cast<char*>(&numbers[place_of(i)]);
    const bool is_inside = place_of(i) * 8 >= first && place_of(i) * 8 < first + area_bytes;
    faulted = nullptr;
    if (!is_right(i) && faulted == nullptr) return 0;
    if (is_inside && faulted == address) ++seen;
    if (!is_inside && faulted != nullptr) return 0;
  }
  return seen;
}

bool is_protected() {
  handle(SIGSEGV, [](int, siginfo_t* why, void*) {
    faulted = static_cast<char*>(why->si_addr);
    void* const page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(faulted) & ~std::uintptr_t{4095});
    allow(page);
  });
  constexpr std::size_t area_bytes = std::size_t{8} << 20;
  auto* const start = reinterpret_cast<char*>(numbers);
  const auto shifted = (4096 - reinterpret_cast<std::uintptr_t>(start) % 4096) % 4096;
  const auto all_fault = [&](std::size_t first) {
    const std::size_t seen = faults_in(first + shifted, area_bytes);
    std::printf("%zu faults\n", seen);
    return seen > 500;  // one a page, and a fifth of 2048 pages has none
  };
  if (wrong_ones(0, picked) + wrong_ones(0, picked) != 0) return false;
  allow = [](void* page) { mprotect(page, 4096, PROT_READ); };
  mprotect(start + shifted, area_bytes, PROT_NONE);
  if (!all_fault(0)) return false;
  if (wrong_ones(0, picked) != 0) return false;
  const int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  if (key > 0) {
    allow = [](void* page) { pkey_mprotect(page, 4096, PROT_READ, 0); };
    pkey_mprotect(start + 2 * area_bytes + shifted, area_bytes, PROT_READ | PROT_WRITE, key);
    if (!all_fault(2 * area_bytes)) return false;
  }
  return wrong_ones(0, picked) == 0;
}

ucontext_t here;
ucontext_t there;

// Of a stack that was painted before, the part that has changed.
std::size_t stack_bytes_of(void (*body)()) {
  constexpr std::size_t stack_bytes = std::size_t{128} << 10;
  static char stack[stack_bytes];
  std::memset(stack, 0x5a, sizeof stack);
  getcontext(&there);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = sizeof stack;
  there.uc_link = &here;
  makecontext(&there, body, 0);
  swapcontext(&here, &there);
  std::size_t unused = 0;
  while (unused < sizeof stack && stack[unused] == 0x5a) ++unused;
  return sizeof stack - unused;
}

// Copies that are there, that are made one by one, and side by side.
bool measures_stack() {
  const std::size_t with_copies = stack_bytes_of([] { failures = static_cast<int>(wrong_ones(0, picked)); });
  const std::size_t single = stack_bytes_of([] {
    for (std::size_t i = picked; i < 2 * picked; ++i) failures = failures + (is_right(i) ? 0 : 1);
  });
  std::printf("%zu bytes side by side, %zu one by one\n", with_copies, single);
  return failures == 0;
}

}  // namespace

int main(int arguments, char** argument) {
  if (arguments < 2) return 2;
  numbers = static_cast<std::uint64_t*>(std::malloc(count * sizeof *numbers));
  for (std::size_t i = 0; i < count; ++i) numbers[i] = i * 3;
  const std::size_t wrong = wrong_ones(0, picked) + wrong_ones(0, picked);
  const char* const what = argument[1];
  const bool is_well = std::strcmp(what, "forks") == 0       ? forks()
                       : std::strcmp(what, "jumps") == 0     ? jumps()
                       : std::strcmp(what, "protected") == 0 ? is_protected()
                       : std::strcmp(what, "stack") == 0     ? measures_stack()
                                                             : false;
  std::puts(wrong == 0 && is_well ? "right" : "wrong");
  std::free(numbers);
  return 0;
}
