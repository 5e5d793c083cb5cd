// Forks children that go on to read and write the memory they inherited, without exec, while the parent writes, too.
// Every process must see its own data.
//
//   forker MIB CHILDREN    exit code 0: all data right; 3: wrong data somewhere; 4: a child was stopped
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

// What the C library keeps for itself and touches in the middle of fork: streams and name-service records. They have
// gone cold by the time of the fork.
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

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count != 3) {
    std::fputs("usage: forker MIB CHILDREN\n", stderr);
    return 2;
  }
  const std::size_t count = (std::strtoull(arguments[1], nullptr, 10) << 20) / sizeof(std::uint64_t);
  const auto child_count = std::strtoull(arguments[2], nullptr, 10);
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
