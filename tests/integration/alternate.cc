// The answers of sigaltstack(2), outside of signal handlers and in them: its errors, which stack is in use, and what a
// handler may change. Runtimes like Go's ask all of this, and end when the answer is not the kernel's. A line each.
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr std::size_t stack_bytes = std::size_t{128} << 10;
constexpr int disarms = static_cast<int>(1U << 31);  // SS_AUTODISARM
stack_t mine{};
stack_t other{};
sigjmp_buf back;

// With errno when it failed, so that a line tells both.
int call(const stack_t* wanted, stack_t* old) {
  return syscall(SYS_sigaltstack, wanted, old) == 0 ? 0 : errno;
}

stack_t stack_of(void* memory, std::size_t bytes, int flags) {
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = bytes;
  stack.ss_flags = flags;
  return stack;
}

stack_t new_stack() {
  void* const memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return stack_of(memory, stack_bytes, 0);
}

// The stack that a handler finds in its context. It must stand on that stack, wherever it lies.
void tell(const char* where) {
  stack_t now{};
  const int failure = call(nullptr, &now);
  char here = 0;
  const auto at = reinterpret_cast<std::uintptr_t>(&here);
  const auto first = reinterpret_cast<std::uintptr_t>(now.ss_sp);
  const bool inside = at >= first && at - first < now.ss_size;
  const char* const use = (now.ss_flags & SS_ONSTACK) != 0 ? (inside ? "in use" : "in use, elsewhere")
                          : now.ss_sp == mine.ss_sp        ? "mine"
                          : now.ss_sp == other.ss_sp       ? "the other"
                          : now.ss_sp == nullptr           ? "none"
                                                           : "unknown";
  std::printf("%s: error %d, flags %x, %s\n", where, failure, static_cast<unsigned>(now.ss_flags), use);
}

void try_all(const char* where) {
  const struct {
    const char* name;
    stack_t stack;
  } wanted[] = {{"bad flags", stack_of(other.ss_sp, stack_bytes, 4)},
                {"too small", stack_of(other.ss_sp, 1024, 0)},
                {"none", stack_of(nullptr, 0, SS_DISABLE)},
                {"mine", mine},
                {"the other", other},
                {"the other, in use", stack_of(other.ss_sp, stack_bytes, SS_ONSTACK)},
                {"a bit small", stack_of(other.ss_sp, 2047, 0)}};
  for (const auto& line : wanted) std::printf("%s: %s: error %d\n", where, line.name, call(&line.stack, nullptr));
  tell(where);
}

void nested(int) {
  tell("nested");
}

void on_signal(int) {
  tell("begin");
  raise(SIGUSR2);
  try_all("handler");
  tell("end");
}

void jump(int) {
  tell("before the jump");
  siglongjmp(back, 1);
}

void handle(int number, void (*handler)(int), int flags) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(number, &action, nullptr);
}

void with(const char* name, const stack_t& stack) {
  std::printf("-- %s: set %d\n", name, call(&stack, nullptr));
  tell("before");
  handle(SIGUSR1, on_signal, SA_ONSTACK);
  raise(SIGUSR1);
  tell("after");
  handle(SIGUSR1, jump, SA_ONSTACK);
  if (sigsetjmp(back, 1) == 0) raise(SIGUSR1);
  tell("after the jump");
}

}  // namespace

int main() {
  mine = new_stack();
  other = new_stack();
  handle(SIGUSR2, nested, SA_ONSTACK);
  tell("start");
  try_all("outside");
  with("its own stack", mine);
  with("the same, in use", stack_of(mine.ss_sp, stack_bytes, SS_ONSTACK));
  with("a stack that disarms", stack_of(mine.ss_sp, stack_bytes, disarms));
  with("no stack", stack_of(nullptr, 0, SS_DISABLE));
  call(&mine, nullptr);
  std::thread([] {
    tell("a thread");
    with("of a thread", other);
  }).join();
  tell("at last");
  return 0;
}
