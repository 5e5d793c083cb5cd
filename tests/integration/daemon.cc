// Has no standard streams, as a daemon, and forks a child that closes every descriptor it does not know of. Each number
// below its runtime's is free, so that the child's may come to lie there.
//
//   daemon MIB     exit code 0: the child found all that it inherited; 3: wrong data
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace {

constexpr int wrong_data = 3;
constexpr int most_descriptors = 1024;
constexpr std::size_t step = 512;  // a page of words

int find_all(const std::vector<std::uint64_t>& words) {
  for (int descriptor = 3; descriptor < most_descriptors; ++descriptor) close(descriptor);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < words.size(); i += step) {
      if (words[i] != i + 1) return wrong_data;
    }
  }
  return 0;
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count != 2) return 2;
  std::vector<std::uint64_t> words((std::strtoul(arguments[1], nullptr, 10) << 20) / sizeof(std::uint64_t));
  for (std::size_t i = 0; i < words.size(); i += step) words[i] = i + 1;
  for (int descriptor = 0; descriptor < 3; ++descriptor) close(descriptor);
  const pid_t child = fork();
  if (child == 0) _exit(find_all(words));
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 4;
  return WEXITSTATUS(status);
}
