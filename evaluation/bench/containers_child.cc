// The programs of `farheap-bench containers`: each fills a container of std and a far one with the same elements.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <numeric>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "clocks.h"
#include "common/json.h"
#include "far/hash_map.h"
#include "far/list.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/vector.h"
#include "heap_bench.h"

namespace far::bench {

namespace {

using element = std::uint64_t;

// The work of a loop on an element where the compiler is not to vectorise it: the next depends on it.
constexpr element mix(element sum, element one) {
  return (sum ^ one) * 0x9e3779b97f4a7c15u;
}

constexpr std::size_t reads_a_scope = 1000;

// One program, twice. Each returns a sum over what it found.
struct program {
  std::string workload;
  std::size_t operations;
  std::function<element()> with_std;
  std::function<element()> with_far;
};

// Both kinds take turns, each run at going first.
void measure(const program& both, unsigned runs, evaluation::json& samples) {
  for (unsigned run = 0; run <= runs; ++run) {
    double times[2];
    element sums[2];
    for (const unsigned step : {0u, 1u}) {
      const unsigned index = (step + run) % 2;
      const std::uint64_t start = thread_cpu_ns();
      sums[index] = index == 0 ? both.with_std() : both.with_far();
      times[index] = static_cast<double>(thread_cpu_ns() - start) / static_cast<double>(both.operations);
    }
    FAR_CHECK(sums[0] == sums[1], "a far container holds what its std counterpart does");
    if (run == 0) continue;  // warms up
    for (const unsigned index : {0u, 1u}) {
      samples.push_back({{"workload", both.workload},
                         {"configuration", index == 0 ? "std" : "far"},
                         {"metrics", {{"ns", times[index]}, {"ratio", times[index] / times[0]}}}});
    }
  }
}

// `rounds`: how often each walks over all, so that it takes long enough to measure.
void measure_vectors(far::runtime& in, std::size_t count, std::size_t rounds, const std::string& size, unsigned runs,
                     evaluation::json& samples) {
  std::vector<element> near(count);
  std::iota(near.begin(), near.end(), element{1});
  const far::vector<element> far(in, near);
  const far::vector<element, 8> grouped(in, near);
  const std::size_t all = count * rounds;

  measure({"sum by chunks, " + size, all,
           [&] {
             element sum = 0;
             for (std::size_t i = 0; i < rounds; ++i) sum += std::reduce(near.begin(), near.end()) ^ sum;
             return sum;
           },
           [&] {
             element sum = 0;
             for (std::size_t i = 0; i < rounds; ++i) {
               const far::scope here(in);
               element part_sum = 0;
               for (const std::span<const element> part : far.chunks(here)) {
                 part_sum = std::reduce(part.begin(), part.end(), part_sum);
               }
               sum += part_sum ^ sum;
             }
             return sum;
           }},
          runs, samples);
  measure({"sum by iterators, " + size, all,
           [&] {
             element sum = 0;
             for (std::size_t i = 0; i < rounds; ++i) {
               for (const element one : near) sum = mix(sum, one);
             }
             return sum;
           },
           [&] {
             element sum = 0;
             for (std::size_t i = 0; i < rounds; ++i) {
               const far::scope here(in);
               for (const element one : far.range(here)) sum = mix(sum, one);
             }
             return sum;
           }},
          runs, samples);

  const std::size_t reads = std::max<std::size_t>(all / 8, reads_a_scope);
  const auto read_randomly = [&](const auto& read_some) {
    random_numbers random(9);
    element sum = 0;
    for (std::size_t done = 0; done < reads; done += reads_a_scope) sum = read_some(random, sum);
    return sum;
  };
  const auto from = [&](const auto& container) {
    return [&] {
      return read_randomly([&](random_numbers& random, element sum) {
        const far::scope here(in);
        for (std::size_t i = 0; i < reads_a_scope; ++i) sum += container.deref(here, random.below(count));
        return sum;
      });
    };
  };
  const auto from_std = [&] {
    return read_randomly([&](random_numbers& random, element sum) {
      for (std::size_t i = 0; i < reads_a_scope; ++i) sum += near[random.below(count)];
      return sum;
    });
  };
  measure({"random reads, " + size, reads, from_std, from(far)}, runs, samples);
  measure({"random reads in objects of 64 bytes, " + size, reads, from_std, from(grouped)}, runs, samples);
}

void measure_changes(far::runtime& in, std::size_t count, unsigned runs, evaluation::json& samples) {
  measure({"append", count,
           [&] {
             std::vector<element> fresh;
             for (element i = 0; i < count; ++i) fresh.push_back(i);
             return fresh.back();
           },
           [&] {
             far::vector<element> fresh(in);
             for (element i = 0; i < count; ++i) fresh.push_back(i);
             return fresh.read(count - 1);
           }},
          runs, samples);
  std::vector<element> disorder(count);
  random_numbers random(4);
  std::ranges::generate(disorder, [&] { return random.next(); });
  measure({"sort", count,
           [&] {
             std::vector<element> sorted(disorder);
             std::sort(sorted.begin(), sorted.end());
             return sorted[count / 2];
           },
           [&] {
             far::vector<element> sorted(in, disorder);
             const far::scope here(in);
             const auto range = sorted.range_mut(here);
             std::sort(range.begin(), range.end());
             return sorted.deref(here, count / 2);
           }},
          runs, samples);
}

void measure_lists(far::runtime& in, std::size_t count, std::size_t rounds, const std::string& size, unsigned runs,
                   evaluation::json& samples) {
  std::list<element> near;
  far::list<element> far(in);
  for (element i = 0; i < count; ++i) {
    near.push_back(i);
    far.push_back(i);
  }
  measure({"list walk, " + size, count * rounds,
           [&] {
             element sum = 0;
             for (std::size_t i = 0; i < rounds; ++i) {
               for (const element one : near) sum = mix(sum, one);
             }
             return sum;
           },
           [&] {
             element sum = 0;
             for (std::size_t i = 0; i < rounds; ++i) {
               const far::scope here(in);
               for (const element one : far.range(here)) sum = mix(sum, one);
             }
             return sum;
           }},
          runs, samples);
}

void measure_maps(far::runtime& in, std::size_t count, std::size_t rounds, const std::string& size, unsigned runs,
                  evaluation::json& samples) {
  // Random numbers: std hashes a number to itself, and with keys at even distances would have no collisions.
  const auto key_of = [](element i) {
    i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9u;
    i = (i ^ i >> 27) * 0x94d049bb133111ebu;
    return i ^ i >> 31;
  };
  const auto fill_std = [&](std::unordered_map<element, element>& map) {
    for (element i = 0; i < count; ++i) map.insert_or_assign(key_of(i), i);
  };
  const auto fill_far = [&](far::hash_map<element, element>& map) {
    for (element i = 0; i < count; ++i) map.insert_or_assign(key_of(i), i);
  };
  std::unordered_map<element, element> near;
  far::hash_map<element, element> far(in);
  fill_std(near);
  fill_far(far);
  const std::size_t look_ups = std::max<std::size_t>(count * rounds, reads_a_scope);
  const auto look_up = [&](const auto& find_some) {
    random_numbers random(9);
    element sum = 0;
    for (std::size_t done = 0; done < look_ups; done += reads_a_scope) sum = find_some(random, sum);
    return sum;
  };
  const auto with_std = [&] {
    return look_up([&](random_numbers& random, element sum) {
      for (std::size_t i = 0; i < reads_a_scope; ++i) sum += near.find(key_of(random.below(count)))->second;
      return sum;
    });
  };
  measure({"hash map find, " + size, look_ups, with_std,
           [&] {
             return look_up([&](random_numbers& random, element sum) {
               const far::scope here(in);
               for (std::size_t i = 0; i < reads_a_scope; ++i) sum += *far.find(here, key_of(random.below(count)));
               return sum;
             });
           }},
          runs, samples);
  measure({"hash map get, " + size, look_ups, with_std,
           [&] {
             return look_up([&](random_numbers& random, element sum) {
               for (std::size_t i = 0; i < reads_a_scope; ++i) sum += *far.get(key_of(random.below(count)));
               return sum;
             });
           }},
          runs, samples);
  measure({"hash map insert, " + size, count,
           [&] {
             std::unordered_map<element, element> fresh;
             fill_std(fresh);
             return fresh.size();
           },
           [&] {
             far::hash_map<element, element> fresh(in);
             fill_far(fresh);
             return fresh.size();
           }},
          runs, samples);
}

}  // namespace

result<evaluation::json> containers_child(const evaluation::json& assignment) {
  far::runtime_options chosen;
  chosen.local_bytes = 2 * gib;
  chosen.workers = 1;
  far::runtime here(chosen);
  const auto runs = assignment.at("runs").get<unsigned>();
  const auto factor = assignment.at("factor").get<std::size_t>();
  evaluation::json samples = evaluation::json::array();
  here.run([&] {
    measure_vectors(here, 100'000, 20 * factor, "100 k", runs, samples);
    measure_vectors(here, 20'000'000, 1, "20 M", runs, samples);
    measure_changes(here, 200'000 * factor, runs, samples);
    measure_lists(here, 100'000, 5 * factor, "100 k", runs, samples);
    measure_lists(here, 5'000'000, 1, "5 M", runs, samples);
    measure_maps(here, 1'000, 200 * factor, "1 k", runs, samples);
    measure_maps(here, 100'000, 2 * factor, "100 k", runs, samples);
    measure_maps(here, 2'000'000, 1, "2 M", runs, samples);
  });
  return samples;
}

}  // namespace far::bench
