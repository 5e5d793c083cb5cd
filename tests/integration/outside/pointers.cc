// Far pointers and fibers, as a user writes them: four times as many bytes as the budget, read back on fibers.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "far/runtime.h"
#include "far/shared_ptr.h"
#include "far/unique_ptr.h"
#include "far/version.h"

namespace {

struct block {
  std::uint64_t value = 0;
  std::uint64_t filler[31] = {};
};

constexpr std::size_t count = 262'144;  // 64 MiB
constexpr std::size_t fibers = 32;

}  // namespace

int main() try {
  far::runtime farheap({.local_bytes = std::size_t{16} << 20, .far = "memory:?latency=5us", .workers = 2});
  const far::tag blocks_tag(farheap, {.hotness_bits = 2});
  const far::shared_ptr<std::uint64_t> total = far::make_shared<std::uint64_t>(farheap, 0u);
  std::vector<far::unique_ptr<block>> blocks;
  for (std::uint64_t i = 0; i < count; ++i) blocks.push_back(far::make_unique<block>(blocks_tag, block{.value = i}));

  std::vector<std::uint64_t> sums(fibers);
  std::vector<far::task<>> running;
  for (std::size_t index = 0; index < fibers; ++index) {
    running.push_back(farheap.spawn([&, index] {
      for (std::size_t i = index; i < count; i += fibers) {
        const far::scope here(farheap);
        sums[index] += blocks[i].deref(here).value;
      }
    }));
  }
  for (far::task<>& task : running) task.join();
  for (const std::uint64_t sum : sums) total.write(total.read() + sum);

  const bool right = total.read() == std::uint64_t{count} * (count - 1) / 2;
  std::printf("farheap %s: %s\n", FAR_VERSION_TEXT, right ? "right" : "wrong");
  return right ? 0 : 1;
} catch (const std::exception& refused) {
  std::fprintf(stderr, "%s\n", refused.what());
  return 1;
}
