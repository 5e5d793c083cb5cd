// Makes and frees blocks of many sizes, again and again, and says by how much the kernel's page tables grew once the
// first rounds were over: those of addresses that are never used again would add up.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr unsigned rounds = 40;
constexpr unsigned first_rounds = 10;
constexpr std::size_t page_bytes = 4096;

char* make_block(std::size_t bytes) {
  auto* const block = static_cast<char*>(std::malloc(bytes));
  if (block == nullptr) std::abort();
  for (std::size_t at = 0; at < bytes; at += page_bytes) block[at] = 1;
  return block;
}

long page_table_kib() {
  std::FILE* const status = std::fopen("/proc/self/status", "r");
  if (status == nullptr) std::abort();
  long found = -1;
  char line[256];
  while (std::fgets(line, sizeof line, status) != nullptr) {
    if (std::strncmp(line, "VmPTE:", 6) == 0) found = std::strtol(line + 6, nullptr, 10);
  }
  std::fclose(status);
  return found;
}

}  // namespace

int main() {
  std::mt19937_64 random(1);
  long before = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    if (round == first_rounds) before = page_table_kib();
    std::vector<char*> blocks;
    for (unsigned i = 0; i < 12; ++i) blocks.push_back(make_block((1 + random() % 24) * mib));
    for (char* const block : blocks) std::free(block);
  }
  std::printf("page tables grew by %ld kB\n", page_table_kib() - before);
  return 0;
}
