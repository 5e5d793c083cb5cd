// Walks over a large array until it is told to stop, checking and rewriting every word: a program that is busy with its
// memory for as long as a test needs, and that notices a wrong byte. Content depends on the address and on the pass.
//
//   walker MIB     prints `pid N`, then `pass K` after each pass; ends, with a last check, when its standard input does
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

std::uint64_t expected(const std::uint64_t* address, std::uint64_t pass) {
  return reinterpret_cast<std::uintptr_t>(address) * 0x9e3779b97f4a7c15u + pass;
}

void check(const std::uint64_t* words, std::size_t count, std::uint64_t pass) {
  for (std::size_t index = 0; index < count; ++index) {
    if (words[index] == expected(words + index, pass)) continue;
    std::printf("wrong data: word %zu at %p after pass %llu: expected %016llx, found %016llx\n", index,
                static_cast<const void*>(words + index), static_cast<unsigned long long>(pass),
                static_cast<unsigned long long>(expected(words + index, pass)),
                static_cast<unsigned long long>(words[index]));
    std::fflush(stdout);
    std::_Exit(1);
  }
}

void write(std::uint64_t* words, std::size_t count, std::uint64_t pass) {
  for (std::size_t index = 0; index < count; ++index) words[index] = expected(words + index, pass);
}

bool must_stop() {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, 0) > 0;
}

}  // namespace

int main(int argument_count, char** arguments) {
  const std::size_t mib = argument_count == 2 ? std::strtoull(arguments[1], nullptr, 10) : 0;
  if (mib == 0) {
    std::fputs("usage: walker MIB\n", stderr);
    return 2;
  }
  const std::size_t count = (mib << 20) / sizeof(std::uint64_t);
  auto* words = static_cast<std::uint64_t*>(std::malloc(count * sizeof(std::uint64_t)));
  if (words == nullptr) {
    std::perror("walker: malloc");
    return 2;
  }
  std::printf("pid %d\n", static_cast<int>(::getpid()));
  std::fflush(stdout);

  std::uint64_t pass = 0;
  write(words, count, pass);
  do {
    std::printf("pass %llu\n", static_cast<unsigned long long>(pass));
    std::fflush(stdout);
    check(words, count, pass);
    write(words, count, ++pass);
  } while (!must_stop());
  check(words, count, pass);
  std::puts("all data right");
  std::free(words);
  return 0;
}
