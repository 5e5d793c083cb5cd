// One configuration of `farheap-bench offload`, in a process of its own: a walk over numbers, most of which are remote.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "clocks.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/vector.h"
#include "heap_bench.h"

namespace far::bench {

namespace {

double sum_of(std::span<const double> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

// The way that the assignment names: each returns the sum of all, and may run on fibers.
std::function<double()> way_named(const std::string& name, far::runtime& in, const far::vector<double>& all) {
  if (name == "summarize") {
    return [&] { return all.summarize().sum(); };
  }
  if (name == "chunks") {
    return [&] {
      const far::scope here(in);
      double sum = 0;
      for (const std::span<const double> part : all.chunks(here)) sum += sum_of(part);
      return sum;
    };
  }
  FAR_CHECK(name == "fibers", "there is such a way");
  return [&] {
    std::vector<double> sums(all.size() / far::elements_per_object<double> + 1);
    all.for_each_chunk([&](std::span<const double> part, std::size_t first) {
      sums[first / far::elements_per_object<double>] += sum_of(part);
    });
    return sum_of(sums);
  };
}

}  // namespace

result<nlohmann::json> offload_child(const nlohmann::json& assignment) {
  const auto count = assignment.at("numbers").get<std::size_t>();
  const auto runs = assignment.at("runs").get<unsigned>();
  far::runtime_options chosen;
  chosen.local_bytes = assignment.at("local_bytes");
  chosen.far = assignment.at("far");
  far::runtime here(chosen);
  far::vector<double> all(here);
  double expected = 0;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(static_cast<double>(i % 1000));  // whole numbers: every order of addition has the same sum
    expected += static_cast<double>(i % 1000);
  }
  const std::function<double()> way = way_named(assignment.at("way"), here, all);
  nlohmann::json times = nlohmann::json::array();
  nlohmann::json fetched = nlohmann::json::array();
  const double pages = static_cast<double>(count) * sizeof(double) / page_bytes;
  for (unsigned run = 0; run <= runs; ++run) {
    const std::uint64_t before = here.statistics().fetched_pages;
    const std::uint64_t start = monotonic_ns();
    FAR_CHECK(way() == expected, "all ways find the same sum");
    const auto elapsed = static_cast<double>(monotonic_ns() - start);
    if (run == 0) continue;  // warms up
    times.push_back(elapsed / pages);
    fetched.push_back(static_cast<double>(here.statistics().fetched_pages - before) / pages);
  }
  return nlohmann::json{{"elapsed_ns", times}, {"fetched", fetched}};
}

}  // namespace far::bench
