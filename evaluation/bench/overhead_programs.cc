// The programs that `farheap-bench overhead` runs natively and under `farheap run`: plain C++ that knows nothing of
// Farheap. Each prints a checksum that depends on everything it did.
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "benchmark.h"

namespace far::bench {

namespace {

class random_numbers {
 public:
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  std::uint64_t state_ = 0x2545f4914f6cdd1d;
};

// Small blocks of mixed sizes that live for a while, as in an interpreter; some grow.
std::uint64_t allocate_much(std::size_t rounds) {
  constexpr std::size_t live_blocks = 200'000;
  std::vector<unsigned char*> blocks(live_blocks);
  random_numbers random;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < rounds; ++i) {
    const std::uint64_t dice = random.next();
    unsigned char*& block = blocks[dice % live_blocks];
    if (block != nullptr) sum += block[0];
    const std::size_t bytes = 16 + (dice >> 32) % 1008;
    if (block != nullptr && dice % 8 == 0) {
      block = static_cast<unsigned char*>(realloc(block, bytes * 2));
    } else {
      free(block);
      block = static_cast<unsigned char*>(malloc(bytes));
    }
    FAR_CHECK(block != nullptr, "out of memory");
    block[0] = static_cast<unsigned char>(i);
    block[bytes - 1] = static_cast<unsigned char>(dice);
  }
  for (unsigned char* block : blocks) free(block);
  return sum;
}

// Large mappings that are filled once, read, and given back, as NumPy's temporaries are.
std::uint64_t map_and_touch(std::size_t rounds) {
  constexpr std::size_t bytes = 96 * mib;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < rounds; ++i) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAR_CHECK(mapped != MAP_FAILED, "out of memory");
    auto* words = static_cast<std::uint64_t*>(mapped);
    constexpr std::size_t count = bytes / sizeof(std::uint64_t);
    for (std::size_t word = 0; word < count; word += 8) words[word] = word ^ i;
    for (std::size_t word = 0; word < count; word += 64) sum += words[word];
    munmap(mapped, bytes);
  }
  return sum;
}

// Columns that are derived, filtered, grouped and sorted, as in an analysis of a table.
std::uint64_t analyse_columns(std::size_t rows) {
  random_numbers random;
  std::vector<double> delays(rows);
  std::vector<std::uint32_t> carriers(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::uint64_t dice = random.next();
    delays[row] = static_cast<double>(dice % 10'000) / 16.0;
    carriers[row] = static_cast<std::uint32_t>(dice >> 40) % 64;
  }
  double total = 0;
  for (int pass = 0; pass < 4; ++pass) {
    std::vector<double> derived(rows);
    for (std::size_t row = 0; row < rows; ++row) derived[row] = delays[row] * 1.5 + pass;
    std::vector<double> sums(64);
    for (std::size_t row = 0; row < rows; ++row) sums[carriers[row]] += derived[row];
    std::vector<double> late;
    for (std::size_t row = 0; row < rows; ++row) {
      if (derived[row] > 900) late.push_back(derived[row]);
    }
    std::sort(late.begin(), late.end());
    total += late[late.size() / 2];
    for (const double sum : sums) total += sum;
  }
  return static_cast<std::uint64_t>(total);
}

}  // namespace

int overhead_child(const std::string& program, bool quick) {
  const std::size_t share = quick ? 4 : 1;
  std::uint64_t checksum = 0;
  if (program == "malloc") {
    checksum = allocate_much(12'000'000 / share);
  } else if (program == "touch") {
    checksum = map_and_touch(24 / share);
  } else if (program == "columns") {
    checksum = analyse_columns(12'000'000 / share);
  } else if (program != "start") {
    fmt::print(stderr, "overhead-child is started by farheap-bench itself\n");
    return 2;
  }
  fmt::print("{}\n", checksum);
  return 0;
}

}  // namespace far::bench
