// The cost of a page of `zmem:` in CPU time, and how small it becomes: batches of 64 are written, single pages read.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace far::backend {
namespace {

constexpr std::size_t pages = 16'384;
constexpr std::size_t batch = 64;
constexpr std::size_t page_words = page_bytes / sizeof(std::uint64_t);

using words = std::vector<std::uint64_t>;

double cpu_us() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e6 + static_cast<double>(used.tv_nsec) / 1e3;
}

struct kind {
  const char* name;
  std::uint64_t (*word)(std::size_t index, std::uint64_t random);
};

constexpr kind kinds[] = {
    {"half random", [](std::size_t i, std::uint64_t random) { return i / 8 % 2 == 0 ? std::uint64_t{7} : random; }},
    {"ascending numbers", [](std::size_t i, std::uint64_t) { return std::uint64_t{1'000'000'000} + i; }},
    {"prices",
     [](std::size_t, std::uint64_t random) {
       const double price = static_cast<double>(random % 100'000) / 100;
       std::uint64_t word = 0;
       std::memcpy(&word, &price, sizeof word);
       return word;
     }},
    {"random", [](std::size_t, std::uint64_t random) { return random; }},
    {"zeros", [](std::size_t, std::uint64_t) { return std::uint64_t{0}; }},
};

words fill(const kind& chosen) {
  words content(pages * page_words);
  std::uint64_t random = 88'172'645'463'325'252u;
  for (std::size_t i = 0; i < content.size(); ++i) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    content[i] = chosen.word(i, random);
  }
  return content;
}

void transfer(channel& queue, const request& one) {
  completion done;
  if (queue.submit({&one, 1}) != 1 || queue.poll({&done, 1}) != 1 || done.error_code != 0) std::abort();
}

void measure(const std::string& name, const kind& chosen) {
  const std::unique_ptr<backend> far = open(name).value();
  const std::unique_ptr<channel> queue = far->open_channel(batch).value();
  words content = fill(chosen);
  auto* const bytes = reinterpret_cast<std::byte*>(content.data());
  const slot_id first = far->allocate(pages).value();
  words page(page_words);
  double write_us = 0;
  double read_us = 0;
  // The first round fills memory.
  for (int round = 0; round < 3; ++round) {
    const double begin_us = cpu_us();
    for (std::size_t i = 0; i < pages; i += batch) {
      transfer(*queue, {.op = operation::write,
                        .slot = first + i,
                        .length_bytes = batch * page_bytes,
                        .buffer = bytes + i * page_bytes});
    }
    write_us = cpu_us() - begin_us;
    const double written_us = cpu_us();
    for (std::size_t i = 0; i < pages; ++i) {
      const std::size_t any = i * 7919 % pages;
      transfer(*queue, {.slot = first + any, .buffer = reinterpret_cast<std::byte*>(page.data())});
    }
    read_us = cpu_us() - written_us;
  }
  while (far->tend() != no_tending) {
  }
  std::printf("%-18s %-18s write %5.2f us  read %5.2f us  stored in %.3f\n", name.c_str(), chosen.name,
              write_us / pages, read_us / pages,
              static_cast<double>(far->report().occupied_bytes()) / (pages * page_bytes));
}

}  // namespace
}  // namespace far::backend

int main() {
  for (const far::backend::kind& one : far::backend::kinds) {
    for (const char* name : {"zmem:", "zmem:?codec=zstd"}) far::backend::measure(name, one);
  }
}
