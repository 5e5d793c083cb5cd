// Scenarios of mapper: children made by the kernel's calls, and transfers between the memories of processes.
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "mapper_tools.h"

namespace mapper {
namespace {

constexpr std::uint64_t clears_handlers = std::uint64_t{1} << 32;  // CLONE_CLEAR_SIGHAND
constexpr int by_descriptor = 3;                                   // P_PIDFD
constexpr int exits = 7;

template <typename Value>
Value& at(char* block, std::size_t number) {
  return *reinterpret_cast<Value*>(block + number * page);
}

std::string end_of(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return "none";
  return WIFEXITED(status) ? "exit code " + std::to_string(WEXITSTATUS(status))
                           : "signal " + std::to_string(WTERMSIG(status));
}

long numbered(long result) {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

#if defined(__x86_64__)
// A child that shares our memory and ends with the byte at `told`, which may be far; it may not return from a function.
long end_beside(long number, long first, long second, long third, long fourth, const char* told) {
  register long r10 asm("r10") = fourth;
  long result = number;
  asm volatile(
      "syscall\n"
      "testq %%rax, %%rax\n"
      "jnz 1f\n"
      "movzbl (%[told]), %%edi\n"
      "movl $231, %%eax\n"
      "syscall\n"
      "hlt\n"
      "1:\n"
      : "+a"(result)
      : "D"(first), "S"(second), "d"(third), "r"(r10), [told] "r"(told)
      : "rcx", "r11", "memory");
  return numbered(result);
}
#endif

char stack_of_child[65536];

}  // namespace

// As posix_spawn of glibc 2.38 and later does.
void reset_handlers() {
  struct sigaction action{};
  action.sa_handler = [](int) {};
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGUSR2, &action, nullptr);
  char* const block = map(mib);
  fill(block, mib, 1);
  at<char>(block, 100) = exits;
  press();
  clone_args asked{};
  asked.flags = clears_handlers;
  asked.exit_signal = SIGCHLD;
  pid_t child = static_cast<pid_t>(syscall(SYS_clone3, &asked, sizeof asked));
  if (child == 0) {
    int found = at<char>(block, 100) == exits ? 1 : 0;
    constexpr int signals[] = {SIGUSR1, SIGBUS, SIGUSR2};
    for (std::size_t i = 0; i < 3; ++i) {
      sigaction(signals[i], nullptr, &action);
      if (action.sa_handler == (i == 2 ? SIG_IGN : SIG_DFL)) found |= 2 << i;
    }
    _exit(found);
  }
  say("with memory of its own", end_of(child));
#if defined(__x86_64__)
  press();
  asked.flags |= CLONE_VM | CLONE_VFORK;
  asked.stack = reinterpret_cast<std::uintptr_t>(stack_of_child);
  asked.stack_size = sizeof stack_of_child;
  child = static_cast<pid_t>(
      end_beside(SYS_clone3, reinterpret_cast<long>(&asked), sizeof asked, 0, 0, block + 100 * page));
  say("in our memory", end_of(child));
#endif
  sigaction(SIGUSR1, nullptr, &action);
  say("ours is as before", action.sa_handler != SIG_DFL ? 0L : -1L);
}

// Where the kernel stores them is remote.
void numbers_of_children() {
  char* const block = map(mib);
  fill(block, mib, 1);
  press();
#if defined(__x86_64__)
  constexpr int both_numbers = CLONE_PARENT_SETTID | CLONE_CHILD_SETTID;
  pid_t child =
      static_cast<pid_t>(syscall(SYS_clone, both_numbers | SIGCHLD, 0, &at<pid_t>(block, 3), &at<pid_t>(block, 50), 0));
  if (child == 0) {
    const bool is_stored = at<pid_t>(block, 50) == static_cast<pid_t>(syscall(SYS_gettid));
    at<pid_t>(block, 50) = 0;
    _exit(is_stored && block[50 * page + 64] == static_cast<char>(50 * 7 + 50 * 64 + 1 + 1) ? exits : 1);
  }
  say("the parent has the number", at<pid_t>(block, 3) == child ? 0L : -1L);
  say("and the child", end_of(child));
  press();
  child = static_cast<pid_t>(end_beside(SYS_clone, CLONE_VM | CLONE_VFORK | both_numbers | SIGCHLD,
                                        reinterpret_cast<long>(stack_of_child + sizeof stack_of_child),
                                        reinterpret_cast<long>(&at<pid_t>(block, 5)),
                                        reinterpret_cast<long>(&at<pid_t>(block, 150)), block + 7 * page));
  say("in our memory: the parent's", at<pid_t>(block, 5) == child ? 0L : -1L);
  say("and the child's", at<pid_t>(block, 150) == child ? 0L : -1L);
  say("its end", end_of(child));
#endif
  clone_args asked{};
  asked.flags = CLONE_PIDFD | CLONE_PARENT_SETTID;
  asked.exit_signal = SIGCHLD;
  asked.pidfd = reinterpret_cast<std::uintptr_t>(&at<int>(block, 80));
  asked.parent_tid = reinterpret_cast<std::uintptr_t>(&at<pid_t>(block, 120));
  at<clone_args>(block, 200) = asked;
  press();
  const long made = syscall(SYS_clone3, block + 200 * page, sizeof asked);
  if (made == 0) _exit(exits);
  say("clone3", made > 0 ? 0L : -1L);
  say("its number", at<pid_t>(block, 120) == made ? 0L : -1L);
  siginfo_t about{};
  say("waiting for its descriptor", static_cast<long>(waitid(static_cast<idtype_t>(by_descriptor),
                                                             static_cast<id_t>(at<int>(block, 80)), &about, WEXITED)));
  say("its exit code", static_cast<long>(about.si_status));
}

// What crash handlers ask: what can be read here. The answer comes at once, and is never a signal.
void ask_badly(pid_t process, const char* good) {
  char* const bad = reinterpret_cast<char*>(page);  // the kernel maps nothing so low
  char* const copy = map(page);
  const iovec into{copy, page};
  const iovec hole{bad, page};
  const iovec whole{const_cast<char*>(good), page};
  const auto* const no_vectors = reinterpret_cast<const iovec*>(bad);
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) {
    say("of a hole", static_cast<long>(process_vm_readv(process, &into, 1, &hole, 1, 0)));
    say("into a hole", static_cast<long>(process_vm_readv(process, &hole, 1, &whole, 1, 0)));
    say("writing to a hole", static_cast<long>(process_vm_writev(process, &into, 1, &hole, 1, 0)));
    say("by no vectors", static_cast<long>(process_vm_readv(process, no_vectors, 1, &whole, 1, 0)));
    say("of no vectors", static_cast<long>(process_vm_readv(process, &into, 1, no_vectors, 9, 0)));
  }
  const int zeros = open("/dev/zero", O_RDWR);
  say("readv", static_cast<long>(readv(zeros, no_vectors, 1)));
  say("writev", static_cast<long>(writev(zeros, no_vectors, 300)));
  close(zeros);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::exit(1);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(no_vectors);
  message.msg_iovlen = 1;
  say("sendmsg", static_cast<long>(sendmsg(ends[0], &message, 0)));
  say("sendmsg of nothing", static_cast<long>(sendmsg(ends[0], reinterpret_cast<const msghdr*>(bad), 0)));
  close(ends[0]);
  close(ends[1]);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  say("late", took.count() > 60 ? 1L : 0L);
  munmap(copy, page);
}

// process_vm_readv and process_vm_writev of a child whose pages are remote, and of the parent.
void memory_of_others() {
  constexpr std::size_t bytes = 8 * mib;
  char* const block = map(bytes);
  fill(block, bytes, 3);
  press();
  int to_parent[2];
  int to_child[2];
  if (pipe(to_parent) != 0 || pipe(to_child) != 0) std::exit(1);
  char byte = 0;
  pid_t child = fork();
  if (child == 0) {
    fill(block, bytes / 2, 5);
    mprotect(block + bytes - mib, mib, PROT_NONE);
    press();
    const bool said = write(to_parent[1], "x", 1) == 1 && read(to_child[0], &byte, 1) == 1;
    _exit(said && content(block + bytes / 2, 2 * mib, 11) == "kept" ? exits : 1);
  }
  if (read(to_parent[0], &byte, 1) != 1) std::exit(1);
  char* const copy = map(bytes);
  const iovec here[] = {{copy, 12345}, {copy + 12345, bytes - 12345}};
  const iovec there[] = {{block, 3 * mib}, {block + 3 * mib, bytes - 3 * mib}};
  say("read until what it may not read", static_cast<long>(process_vm_readv(child, here, 2, there, 2, 0)));
  say("what it changed", content(copy, bytes / 2, 5));
  say("what it did not", std::memcmp(copy + bytes / 2, block + bytes / 2, bytes / 2 - mib) == 0 ? 0L : -1L);
  fill(copy, 2 * mib, 11);
  const iovec from{copy, 2 * mib};
  const iovec to{block + bytes / 2, 2 * mib};
  say("written", static_cast<long>(process_vm_writev(child, &from, 1, &to, 1, 0)));
  const iovec shut{block + bytes - mib, mib};
  say("written where it may not write", static_cast<long>(process_vm_writev(child, &from, 1, &shut, 1, 0)));
  ask_badly(child, block);
  ask_badly(getpid(), block);
  if (write(to_child[1], "x", 1) != 1) std::exit(1);
  say("the child found it", end_of(child));
  // Any thread of the parent names its memory.
  std::atomic<pid_t> thread{0};
  std::atomic<bool> has_ended{false};
  std::thread other([&] {
    thread = gettid();
    while (!has_ended) usleep(1'000);
  });
  while (thread == 0) usleep(1'000);
  child = fork();
  if (child == 0) {
    const iovec whole{block, bytes};
    const iovec into{copy, bytes};
    bool is_whole = process_vm_readv(getppid(), &into, 1, &whole, 1, 0) == static_cast<ssize_t>(bytes);
    is_whole = is_whole && process_vm_readv(thread, &into, 1, &whole, 1, 0) == static_cast<ssize_t>(bytes);
    _exit(is_whole && content(copy, bytes, 3) == "kept" ? exits : 1);
  }
  press();
  say("a child read its parent", end_of(child));
  has_ended = true;
  other.join();
}

// Memory that was never accessible, and that the kernel has looked at: by /proc/self/mem, or because it lies behind the
// stack of a thread that ends. A child is the first to use it.
void reservation_looked_at() {
  constexpr std::size_t bytes = 8 * mib;
  char* const block = map_aligned(2 * bytes, PROT_NONE);
  char* const behind = block + bytes / 2;
  char* const read = block + bytes;
  mprotect(block, bytes / 2, both);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, block, bytes / 2);
  pthread_t thread{};
  if (pthread_create(&thread, &attributes, [](void* given) { return given; }, nullptr) != 0) std::exit(1);
  pthread_join(thread, nullptr);
  const int memory = open("/proc/self/mem", O_RDWR);
  char byte = 1;
  say("a byte of a reservation", pread(memory, &byte, 1, static_cast<off_t>(reinterpret_cast<std::uintptr_t>(read))));
  say("it is", static_cast<long>(byte));
  close(memory);
  const pid_t child = fork();
  if (child == 0) {
    bool is_whole = true;
    for (char* const part : {behind, read}) {
      mprotect(part, bytes / 2, both);
      fill(part, bytes / 2, 5);
    }
    press();
    for (char* const part : {behind, read}) {
      is_whole = is_whole && content(part, bytes / 2, 5) == "kept";
      void* const moved = mremap(part, bytes / 2, bytes, MREMAP_MAYMOVE);
      is_whole = is_whole && moved != MAP_FAILED && content(static_cast<char*>(moved), bytes / 2, 5) == "kept";
    }
    _exit(is_whole ? exits : 1);
  }
  say("the child has its bytes", end_of(child));
}

}  // namespace mapper
