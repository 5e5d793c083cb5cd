// hashmap: look-ups of keys that are drawn by Zipf's or the uniform distribution (AIFM, section 8.2.1).
// evaluation/apps/README.md says how to run it.
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <stdexcept>

#include "apps/program.h"
#include "apps/random.h"
#include "apps/web/zipf.h"

namespace {

struct options {
  std::uint64_t keys = 1'000'000;
  std::uint64_t lookups = 4'000'000;
  double zipf = 0.8;
  std::uint64_t seed = 1;
};

using value = std::array<std::uint64_t, 8>;
using table = memory::hash_map<std::uint64_t, value>;

// Look-ups that a task takes at a time.
constexpr std::size_t part = 1024;

value value_of(std::uint64_t key) {
  value words;
  for (std::uint64_t& word : words) word = apps::mix(key += 0x9e3779b97f4a7c15);
  return words;
}

void fill(table& all, const options& chosen, memory::runtime& memory) {
  apps::in_parallel(memory, chosen.keys, part, [&](std::size_t first, std::size_t last) {
    for (std::uint64_t key = first; key < last; ++key) all.insert(key, value_of(key));
  });
}

// Returns a checksum of all values found, in any order.
std::uint64_t look_up(const table& all, const options& chosen, memory::runtime& memory) {
  const web::zipf ranks(chosen.keys, chosen.zipf);
  std::atomic<std::uint64_t> checksum{0};
  apps::in_parallel(memory, chosen.lookups, part, [&](std::size_t first, std::size_t last) {
    apps::random_words random(apps::mix(chosen.seed) + first);
    std::uint64_t sum = 0;
    for (std::size_t i = first; i < last; ++i) {
      // Ranks are scattered over the keys by a prime, so that hot keys are not neighbours.
      const std::uint64_t key = ranks.draw(random) * 4'294'967'291 % chosen.keys;
      const memory::scope here(memory);
      const value* const found = all.find(here, key);
      if (found == nullptr || found->front() != value_of(key).front()) throw std::runtime_error("a key has no value");
      sum += found->back();
    }
    checksum += sum;
  });
  return checksum;
}

}  // namespace

int main(int count, char** arguments) {
  options chosen;
  apps::program program("hashmap", "Looks keys up in a hash map of numbers and values of 64 bytes.");
  program.options().add_number("--keys", chosen.keys, "in the map", 1u, 1u << 31);
  program.options().add_number("--lookups", chosen.lookups, "of keys that are there", 1u, 1u << 31);
  program.options().add_number("--zipf", chosen.zipf, "exponent of the keys' distribution; 0: uniform", 0.0, 10.0);
  program.options().add_seed(chosen.seed, "the look-ups are a function of it");
  return program.run(count, arguments, [&](memory::runtime& memory, apps::phases& timed) {
    table all(memory);
    std::uint64_t checksum = 0;
    timed.run("generate", [&] { fill(all, chosen, memory); });
    timed.run("look_up", [&] { checksum = look_up(all, chosen, memory); });
    return evaluation::json{{"keys", all.size()}, {"checksum", fmt::format("{:016x}", checksum)}};
  });
}
