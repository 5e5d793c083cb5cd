// hashmap: look-ups in a std::unordered_map by Zipf's distribution, of keys that were drawn before. Popular keys are
// scattered among the others. The map is made in the order of its buckets, which is quick in little memory, too.
#include <cstddef>
#include <unordered_map>
#include <vector>

#include "apps/web/zipf.h"
#include "kernel.h"

namespace {

constexpr double exponent = 1.02;
// Of a node and its place among the buckets.
constexpr std::size_t entry_bytes = 40;
// A prime beyond any number of keys here, so that the multiples of it visit every key.
constexpr std::uint64_t stride = 4294967291;

using map = std::unordered_map<std::uint64_t, std::uint64_t>;

map make_map(std::size_t count) {
  map made;
  made.reserve(count);
  for (std::size_t key = 0; key < count; ++key) made.emplace(key, apps::mix(key));
  return made;
}

std::vector<std::uint32_t> draw_keys(std::size_t draws, std::size_t count) {
  std::vector<std::uint32_t> drawn(draws);
  const web::zipf ranks(count, exponent);
  apps::random_words random(1);
  for (std::uint32_t& one : drawn) one = static_cast<std::uint32_t>(ranks.draw(random) * stride % count);
  return drawn;
}

kernels::outcome work(kernels::size asked) {
  const std::size_t count = asked.bytes / entry_bytes;
  map looked_up = make_map(count);
  const std::vector<std::uint32_t> drawn = draw_keys(count / 16, count);
  std::uint64_t sum = 0;
  const kernels::stopwatch timed;
  for (unsigned round = 0; round < asked.rounds; ++round) {
    for (const std::uint32_t key : drawn) {
      const auto place = looked_up.find(key);
      if (place == looked_up.end()) continue;
      sum += place->second;
      // A cache that counts what is asked for.
      if (key % 8 == 0) ++place->second;
    }
  }
  const double seconds = timed.seconds();
  kernels::checksum found;
  found.add(sum);
  return {seconds, found.value()};
}

}  // namespace

int main(int count, char** arguments) {
  return kernels::run(count, arguments, work);
}
