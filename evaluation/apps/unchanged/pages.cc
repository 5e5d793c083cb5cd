// pages: reads one word of random pages, uniformly or by Zipf's distribution, on plain memory; and writes to a share of
// them.
#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <limits>
#include <thread>
#include <vector>

#include "apps/random.h"
#include "apps/web/zipf.h"
#include "common/command_line.h"

namespace {

constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t words_a_page = page_bytes / sizeof(std::uint64_t);

struct options {
  std::uint64_t bytes = std::uint64_t{1} << 30;
  std::uint64_t reads = 1'000'000;  // of each thread
  double zipf = 0;
  unsigned written_percent = 0;
  unsigned threads = 1;
  std::uint64_t seed = 1;
};

// Popular pages shall not be neighbours: ranks are scattered by a bijection of the pages, whose number is a power of
// two.
std::uint64_t page_of(std::uint64_t rank, std::uint64_t pages) {
  return (rank * 0x9e3779b97f4a7c15 + 0x7f4a7c15) & (pages - 1);
}

// Threads write to words of their own, the odd ones, so that they need no order; and reads are of the even ones.
std::uint64_t use(std::vector<std::uint64_t>& memory, const options& chosen, unsigned thread) {
  const std::uint64_t pages = memory.size() / words_a_page;
  const web::zipf ranks(pages, chosen.zipf);
  apps::random_words random(apps::mix(chosen.seed + thread));
  const std::uint64_t own_word = 2 * thread + 1;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < chosen.reads; ++i) {
    std::uint64_t* const page = &memory[page_of(ranks.draw(random), pages) * words_a_page];
    sum += page[i % words_a_page & ~std::uint64_t{1}];
    if (i * 61 % 100 < chosen.written_percent) sum += page[own_word]++;
  }
  return sum;
}

}  // namespace

int main(int count, char** arguments) try {
  options chosen;
  evaluation::command_line line("Reads random pages.");
  line.add_size("--bytes", chosen.bytes, "of memory, rounded down to a power of two", std::size_t{1} << 48);
  line.add_number("--reads", chosen.reads, "of each thread", 0, std::numeric_limits<std::uint64_t>::max());
  line.add_number("--zipf", chosen.zipf, "exponent of the distribution; 0: uniform", 0, 4);
  line.add_number("--written", chosen.written_percent, "percent of the reads that are followed by a write to the page",
                  0, 100);
  line.add_number("--threads", chosen.threads, "of the program", 1, 256);
  line.add_seed(chosen.seed, "of the reads");
  if (const auto status = line.parse(count, arguments)) return *status;
  std::uint64_t pages = 1;
  while (2 * pages * page_bytes <= chosen.bytes) pages *= 2;
  std::vector<std::uint64_t> memory(pages * words_a_page);
  for (std::uint64_t i = 0; i < memory.size(); ++i) memory[i] = apps::mix(i) >> 32;  // half of it compresses
  std::atomic<std::uint64_t> checksum = 0;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> running;
  for (unsigned i = 0; i < chosen.threads; ++i) {
    running.emplace_back([&, i] { checksum += use(memory, chosen, i); });
  }
  for (std::thread& one : running) one.join();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  fmt::print("{{\"seconds\": {:.6f}, \"read_ns\": {:.2f}, \"checksum\": \"{:016x}\"}}\n", taken.count(),
             taken.count() * 1e9 / static_cast<double>(chosen.reads), checksum.load());
} catch (const std::exception& failure) {
  fmt::print(stderr, "pages: {}\n", failure.what());
  return 1;
}
