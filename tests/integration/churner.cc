// Makes and frees blocks of many sizes, again and again, and says what the kernel's page tables take in the end: those
// of addresses that are never used again would add up.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr unsigned rounds = 40;
constexpr std::size_t page_bytes = 4096;

char* make_block(std::size_t bytes) {
  auto* const block = static_cast<char*>(std::malloc(bytes));
  for (std::size_t at = 0; block != nullptr && at < bytes; at += page_bytes) block[at] = 1;
  return block;
}

}  // namespace

int main() {
  std::mt19937_64 random(1);
  for (unsigned round = 0; round < rounds; ++round) {
    std::vector<char*> blocks;
    for (unsigned i = 0; i < 12; ++i) blocks.push_back(make_block((1 + random() % 24) * mib));
    for (char* const block : blocks) std::free(block);
  }
  std::FILE* const status = std::fopen("/proc/self/status", "r");
  char line[256];
  while (std::fgets(line, sizeof line, status) != nullptr) {
    if (std::strncmp(line, "VmPTE:", 6) == 0) std::printf("page tables:%s", line + 6);
  }
  std::fclose(status);
  return 0;
}
