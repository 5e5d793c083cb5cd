// A program that fills more memory than its budget, gives up its rights, and forks: as servers do that start as root.
// Parent and child know every byte. It does not know Farheap.
//
//   dropper MIB [--user UID] [--root DIRECTORY]
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t words_a_page = 512;

std::uint64_t word_of(std::size_t index, std::uint64_t round) {
  return (index + 1) * 0x9e3779b97f4a7c15u ^ round;
}

void fill(std::vector<std::uint64_t>& words, std::uint64_t round) {
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = word_of(i, round);
}

bool holds(const std::vector<std::uint64_t>& words, std::uint64_t round) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == word_of(i, round)) continue;
    std::fprintf(stderr, "dropper: corrupt: word %zu\n", i);
    return false;
  }
  return true;
}

void require(bool done, const char* step) {
  if (done) return;
  std::perror(step);
  std::exit(2);
}

int child(std::vector<std::uint64_t>& words) {
  if (!holds(words, 1)) return 1;
  fill(words, 2);
  return holds(words, 2) ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 2;
  std::vector<std::uint64_t> words(std::strtoul(arguments[1], nullptr, 10) * 256 * words_a_page);
  fill(words, 1);
  for (int i = 2; i + 1 < count; i += 2) {
    if (std::strcmp(arguments[i], "--root") == 0) require(chroot(arguments[i + 1]) == 0 && chdir("/") == 0, "chroot");
    if (std::strcmp(arguments[i], "--user") == 0) {
      const auto user = static_cast<uid_t>(std::strtoul(arguments[i + 1], nullptr, 10));
      require(setgroups(0, nullptr) == 0 && setgid(user) == 0 && setuid(user) == 0, "setuid");
    }
  }
  const pid_t forked = fork();
  require(forked >= 0, "fork");
  if (forked == 0) _exit(child(words));
  int status = 0;
  require(waitpid(forked, &status, 0) == forked, "waitpid");
  if (!holds(words, 1)) return 1;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::fprintf(stderr, "dropper: the child ended with status %#x\n", static_cast<unsigned>(status));
    return 1;
  }
  std::puts("dropper: done");
  return 0;
}
