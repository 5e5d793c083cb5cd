// Threads make large blocks, grow them until they move, and free them: the place that one thread's block leaves is the
// next moment another's.
#include <malloc.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr unsigned threads = 4;
constexpr unsigned blocks_a_thread = 500;
constexpr unsigned growths = 3;

void work(unsigned seed) {
  for (unsigned i = 0; i < blocks_a_thread; ++i) {
    std::size_t bytes = (32 + 2 * ((i + seed) % 3)) * mib;
    auto* block = static_cast<char*>(std::malloc(bytes));
    for (unsigned grown = 0; block != nullptr && grown < growths; ++grown) {
      block[0] = static_cast<char>(seed);
      bytes += 2 * mib;
      block = static_cast<char*>(std::realloc(block, bytes));
    }
    if (block == nullptr || block[0] != static_cast<char>(seed) || ::malloc_usable_size(block) < bytes) {
      std::puts("grower: a block is not what it was");
      std::fflush(stdout);
      std::_Exit(1);
    }
    std::free(block);
  }
}

}  // namespace

int main() {
  std::vector<std::thread> all;
  for (unsigned seed = 1; seed <= threads; ++seed) all.emplace_back(work, seed);
  for (std::thread& thread : all) thread.join();
  std::puts("grower: done");
  return 0;
}
