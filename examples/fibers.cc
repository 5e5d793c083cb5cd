// Fibers hide the latency of the far tier: while one waits for an object, the others of its worker run.
//
//     build/bin/examples/fibers [FAR-TIER]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "far/runtime.h"
#include "far/unique_ptr.h"

namespace {

struct block {
  std::uint64_t value = 0;
  std::uint64_t filler[31] = {};
};

// Reads `count` blocks in an order that nobody can foresee, shared out among `fibers` fibers. Returns the sum.
std::uint64_t add_up(far::runtime& farheap, const std::vector<far::unique_ptr<block>>& blocks, std::size_t fibers,
                     std::size_t count) {
  std::vector<std::uint64_t> sums(fibers);
  std::vector<far::task<>> running;
  for (std::size_t index = 0; index < fibers; ++index) {
    running.push_back(farheap.spawn([&, index] {
      for (std::size_t i = index; i < count; i += fibers) {
        const far::scope here(farheap);
        sums[index] += blocks[i * 7919 % blocks.size()].deref(here).value;
      }
    }));
  }
  for (far::task<>& task : running) task.join();
  std::uint64_t sum = 0;
  for (const std::uint64_t partial : sums) sum += partial;
  return sum;
}

}  // namespace

int main(int count_of_arguments, char** arguments) try {
  far::runtime farheap({.local_bytes = std::size_t{16} << 20,
                        .far = count_of_arguments > 1 ? arguments[1] : "memory:?latency=20us",
                        .workers = 1});
  std::vector<far::unique_ptr<block>> blocks;
  for (std::uint64_t i = 0; i < 400'000; ++i) blocks.push_back(far::make_unique<block>(farheap, block{.value = i}));

  constexpr std::size_t reads = 20'000;
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < reads; ++i) expected += i * 7919 % blocks.size();
  bool right = true;
  for (const std::size_t fibers : {1, 8, 64}) {
    const auto start = std::chrono::steady_clock::now();
    right &= add_up(farheap, blocks, fibers, reads) == expected;
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    std::printf("%2zu fibers: %.1f us a read\n", fibers, took.count() / reads);
  }
  return right ? 0 : 1;
} catch (const std::exception& refused) {
  // The far tier, or permission for userfaultfd, is missing: the message says what to do.
  std::fprintf(stderr, "%s\n", refused.what());
  return 1;
}
