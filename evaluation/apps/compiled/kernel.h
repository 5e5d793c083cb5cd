// The common part of these programs: `NAME MIB ROUNDS` as their command line, what they print, and their checksum.
// Plain C++ that any compiler takes, because they are compiled anew by each of the compilers that are compared.
#pragma once

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>

#include "apps/random.h"

namespace kernels {

struct size {
  std::uint64_t bytes;  // that the program's data has, about
  unsigned rounds;      // of its work
};

// Depends on the order, and on every bit of floating-point numbers.
class checksum {
 public:
  void add(std::uint64_t word) { sum_ = apps::mix(sum_ ^ word) + word; }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }
  void add(std::span<const double> numbers) {
    for (const double one : numbers) add(one);
  }
  [[nodiscard]] std::uint64_t value() const { return sum_; }

 private:
  std::uint64_t sum_ = 0x6a09e667f3bcc908;
};

class stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What a program found, and the time without making its data and adding up what it found.
struct outcome {
  double seconds;
  std::uint64_t checksum;
};

// Returns the exit status. `work` is called once, with the size that the command line asks for.
template <typename Work>
int run(int count, char** arguments, Work&& work) {
  const unsigned long long mebibytes = count == 3 ? std::strtoull(arguments[1], nullptr, 10) : 0;
  const unsigned long long rounds = count == 3 ? std::strtoull(arguments[2], nullptr, 10) : 0;
  if (mebibytes == 0 || mebibytes > 65536 || rounds == 0 || rounds > 1'000'000) {
    std::fprintf(stderr, "usage: %s MIB ROUNDS; MIB is 1 to 65536, ROUNDS 1 to 1000000\n", arguments[0]);
    return 2;
  }
  try {
    const outcome found = work(size{mebibytes << 20, static_cast<unsigned>(rounds)});
    std::printf("{\"seconds\": %.6f, \"checksum\": \"%016llx\"}\n", found.seconds,
                static_cast<unsigned long long>(found.checksum));
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s: %s\n", arguments[0], failure.what());
    return 1;
  }
}

}  // namespace kernels
