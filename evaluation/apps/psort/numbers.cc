#include "numbers.h"

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "apps/hints.h"
#include "apps/random.h"
#include "parallel.h"

namespace psort {
namespace {

// Calls work(first, last) for as many parts of [0, size) as there are threads, at once.
template <typename Work>
void by_parts(std::size_t size, unsigned threads, const Work& work) {
  const std::size_t part = (size + threads - 1) / threads;
  in_parallel(threads, [&](unsigned i) { work(std::min(i * part, size), std::min((i + 1) * part, size)); });
}

}  // namespace

void fill(std::vector<std::uint64_t>& values, unsigned threads, std::uint64_t seed) {
  by_parts(values.size(), threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) values[i] = apps::mix(seed + i * 0x9e3779b97f4a7c15);
  });
}

summary summarise(const std::vector<std::uint64_t>& values, unsigned threads) {
  std::atomic<std::uint64_t> checksum = 0;
  std::atomic<bool> sorted = true;
  by_parts(values.size(), threads, [&](std::size_t first, std::size_t last) {
    std::uint64_t sum = 0;
    bool ascending = true;
    for (std::size_t i = first; i < last; ++i) {
      far_hint(&values[i], .read_ahead = 64, .sequential = true);
      sum += apps::mix(values[i]);
      // From the second element on, so that the seams between parts are looked at too.
      if (i > 0 && values[i - 1] > values[i]) ascending = false;
    }
    checksum += sum;
    if (!ascending) sorted = false;
  });
  return {checksum, sorted};
}

}  // namespace psort
