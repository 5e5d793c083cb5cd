// integers: ranks of integers by counting in buckets, in the manner of the NAS benchmark IS (Bailey et al., "The NAS
// parallel benchmarks", 1991).
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "kernel.h"

namespace {

constexpr unsigned buckets_log2 = 10;
constexpr std::size_t buckets = std::size_t{1} << buckets_log2;

struct sorter {
  unsigned key_bits;
  std::vector<std::uint32_t> keys;
  std::vector<std::uint32_t> in_buckets;  // the keys in the order of their buckets
  std::vector<std::uint32_t> ranks;       // how many keys are less than or equal to each

  explicit sorter(std::size_t count) : key_bits(buckets_log2), keys(count), in_buckets(count) {
    while ((count >> key_bits) > 4) ++key_bits;
    ranks.resize(std::size_t{1} << key_bits);
    apps::random_words random(1);
    // A mean of four uniform ones.
    for (std::uint32_t& key : keys) {
      std::uint64_t sum = 0;
      for (int i = 0; i < 4; ++i) sum += random.next() >> (64 - key_bits);
      key = static_cast<std::uint32_t>(sum / 4);
    }
  }

  void rank() {
    const unsigned shift = key_bits - buckets_log2;
    std::vector<std::size_t> places(buckets + 1);
    for (const std::uint32_t key : keys) ++places[(key >> shift) + 1];
    for (std::size_t bucket = 0; bucket < buckets; ++bucket) places[bucket + 1] += places[bucket];
    const std::vector<std::size_t> first = places;
    for (const std::uint32_t key : keys) in_buckets[places[key >> shift]++] = key;
    for (std::size_t bucket = 0; bucket < buckets; ++bucket) rank_bucket(bucket, first[bucket], first[bucket + 1]);
  }

  void rank_bucket(std::size_t bucket, std::size_t begin, std::size_t end) {
    const std::size_t keys_of_it = std::size_t{1} << (key_bits - buckets_log2);
    std::uint32_t* const counts = &ranks[bucket * keys_of_it];
    for (std::size_t i = 0; i < keys_of_it; ++i) counts[i] = 0;
    for (std::size_t i = begin; i < end; ++i) ++counts[in_buckets[i] - bucket * keys_of_it];
    auto sum = static_cast<std::uint32_t>(begin);
    for (std::size_t i = 0; i < keys_of_it; ++i) {
      sum += counts[i];
      counts[i] = sum;
    }
  }
};

// Puts each key at its rank, bucket by bucket, and verifies the order.
std::uint64_t sum_of_sorted(sorter& ranked) {
  std::vector<std::uint32_t>& sorted = ranked.keys;
  for (const std::uint32_t key : ranked.in_buckets) sorted[--ranked.ranks[key]] = key;
  kernels::checksum found;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (i > 0 && sorted[i] < sorted[i - 1]) throw std::runtime_error("the keys are not in order");
    found.add(std::uint64_t{sorted[i]});
  }
  return found.value();
}

kernels::outcome work(kernels::size asked) {
  sorter on(asked.bytes / (2 * sizeof(std::uint32_t) + 2));
  const std::size_t count = on.keys.size();
  const kernels::stopwatch timed;
  for (unsigned round = 0; round < asked.rounds; ++round) {
    // So that no round can be left out.
    on.keys[round % count] = round;
    on.keys[(count - 1 - round) % count] = (std::uint32_t{1} << on.key_bits) - 1 - round;
    on.rank();
  }
  const double seconds = timed.seconds();
  return {seconds, sum_of_sorted(on)};
}

}  // namespace

int main(int count, char** arguments) {
  return kernels::run(count, arguments, work);
}
