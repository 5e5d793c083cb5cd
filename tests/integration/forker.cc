// Forks children that go on to read and write the memory they inherited, without exec, while the parent writes, too.
// Every process must see its own data.
//
//   forker MIB CHILDREN [far-stack | let-go]    exit code 0: all data right; 3: wrong data somewhere; 4: a child was
//   stopped
//
// far-stack: on a stack from malloc, as a coroutine's. let-go: children forget and free what they inherited, at once.
#include <pwd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

constexpr int wrong_data = 3;
constexpr int child_stopped = 4;

std::uint64_t expected(const std::uint64_t* address, std::uint64_t owner) {
  return (reinterpret_cast<std::uintptr_t>(address) + owner) * 0x9e3779b97f4a7c15u;
}

void write(std::uint64_t* words, std::size_t begin, std::size_t end, std::uint64_t owner) {
  for (std::size_t index = begin; index < end; ++index) words[index] = expected(words + index, owner);
}

void check(const char* who, const std::uint64_t* words, std::size_t begin, std::size_t end, std::uint64_t owner) {
  for (std::size_t index = begin; index < end; ++index) {
    if (words[index] == expected(words + index, owner)) continue;
    std::printf("wrong data: %s, word %zu: expected %016llx, found %016llx\n", who, index,
                static_cast<unsigned long long>(expected(words + index, owner)),
                static_cast<unsigned long long>(words[index]));
    std::fflush(stdout);
    std::_Exit(wrong_data);
  }
}

// Structures that the C library keeps for itself and touches in the middle of fork: streams and name-service records.
// They have gone cold by the time of the fork.
std::vector<std::FILE*> open_streams() {
  constexpr int stream_count = 200;
  std::vector<std::FILE*> streams;
  static_cast<void>(::getpwuid(::getuid()));
  for (int i = 0; i < stream_count; ++i) {
    std::FILE* const stream = std::fopen("/dev/zero", "r");
    if (stream != nullptr && std::fgetc(stream) == 0) streams.push_back(stream);
  }
  return streams;
}

void check_streams(const std::vector<std::FILE*>& streams) {
  for (std::FILE* const stream : streams) {
    if (std::fgetc(stream) == 0) continue;
    std::puts("wrong data: a stream is broken in the child");
    std::fflush(stdout);
    std::_Exit(wrong_data);
  }
}

// A child rewrites the second half; the first still holds what the parent wrote before the fork.
void be_child(std::uint64_t* words, std::size_t count, std::uint64_t owner) {
  check("child, before writing", words, 0, count, 0);
  write(words, count / 2, count, owner);
  check("child, first half", words, 0, count / 2, 0);
  check("child, second half", words, count / 2, count, owner);
  std::_Exit(0);
}

// A child that drops the first half, which then reads as zeros, and frees everything.
void be_child_that_lets_go(std::uint64_t* words, std::size_t count) {
  constexpr std::uintptr_t page_bytes = 4096;
  const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(words) + page_bytes - 1) & ~(page_bytes - 1);
  auto* const begin = words + (first - reinterpret_cast<std::uintptr_t>(words)) / sizeof *words;
  const std::size_t bytes = count / 2 * sizeof *words & ~(page_bytes - 1);
  if (::madvise(begin, bytes, MADV_DONTNEED) != 0) std::_Exit(2);
  for (std::size_t index = 0; index < bytes / sizeof *words; ++index) {
    if (begin[index] != 0) std::_Exit(wrong_data);
  }
  std::free(words);
  std::_Exit(0);
}

int wait_for(const std::vector<pid_t>& children) {
  int outcome = 0;
  for (const pid_t child : children) {
    int status = 0;
    if (::waitpid(child, &status, 0) != child) {
      std::perror("forker: waitpid");
      return 2;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == wrong_data) return wrong_data;
    std::printf("child stopped: wait status %d\n", status);
    outcome = child_stopped;
  }
  return outcome;
}

int fork_children(unsigned long megabytes, std::uint64_t child_count, bool lets_go) {
  const std::size_t count = (std::size_t{megabytes} << 20) / sizeof(std::uint64_t);
  auto* words = static_cast<std::uint64_t*>(std::malloc(count * sizeof(std::uint64_t)));
  if (words == nullptr) {
    std::perror("forker: malloc");
    return 2;
  }
  const std::vector<std::FILE*> streams = open_streams();
  write(words, 0, count, 0);

  std::vector<pid_t> children;
  for (std::uint64_t child = 1; child <= child_count; ++child) {
    const pid_t pid = ::fork();
    if (pid < 0) {
      std::perror("forker: fork");
      return 2;
    }
    if (pid == 0) {
      check_streams(streams);
      if (lets_go) be_child_that_lets_go(words, count);
      be_child(words, count, child);
    }
    children.push_back(pid);
  }
  // The children must go on to see what was there when they were forked.
  write(words, 0, count, child_count + 1);
  const int outcome = wait_for(children);
  check("parent", words, 0, count, child_count + 1);
  std::puts(outcome == 0 ? "all data right" : "not all children came to their end");
  return outcome;
}

unsigned long megabytes = 0;
std::uint64_t child_count = 0;
bool lets_go = false;
int outcome = 2;

void fork_children_here() {
  outcome = fork_children(megabytes, child_count, lets_go);
}

void fork_children_on_far_stack() {
  constexpr std::size_t stack_bytes = std::size_t{256} << 10;
  std::vector<std::byte> stack(stack_bytes);
  ucontext_t here;
  ucontext_t there;
  if (getcontext(&there) != 0) return;
  there.uc_stack.ss_sp = stack.data();
  there.uc_stack.ss_size = stack.size();
  there.uc_link = &here;
  makecontext(&there, fork_children_here, 0);
  if (swapcontext(&here, &there) != 0) outcome = 2;
}

}  // namespace

int main(int argument_count, char** arguments) {
  const bool on_far_stack = argument_count == 4 && std::string_view(arguments[3]) == "far-stack";
  lets_go = argument_count == 4 && std::string_view(arguments[3]) == "let-go";
  if (argument_count != 3 && !on_far_stack && !lets_go) {
    std::fputs("usage: forker MIB CHILDREN [far-stack | let-go]\n", stderr);
    return 2;
  }
  megabytes = std::strtoul(arguments[1], nullptr, 10);
  child_count = std::strtoul(arguments[2], nullptr, 10);
  if (on_far_stack) {
    fork_children_on_far_stack();
  } else {
    fork_children_here();
  }
  return outcome;
}
