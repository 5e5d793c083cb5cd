// One configuration of `farheap-bench intensity`, in a process of its own: walks over a vector, with some work for each
// page.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "base/units.h"
#include "clocks.h"
#include "common/json.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/vector.h"
#include "heap_bench.h"

namespace far::bench {

namespace {

using element = std::uint64_t;
constexpr std::size_t elements_a_page = page_bytes / sizeof(element);

// A step of the work, each of which waits for the one before.
constexpr element mix(element sum, element one) {
  return (sum ^ one) * 0x9e3779b97f4a7c15u;
}

// So many steps of work for each page, besides reading it.
element walk(const far::vector<element>& all, far::runtime& in, std::size_t steps) {
  element sum = 0;
  for (std::size_t first = 0; first < all.size(); first += elements_a_page) {
    const far::scope here(in);
    const std::span<const element> page = all.chunk(here, first, elements_a_page);
    for (std::size_t i = 0; i < steps; ++i) sum = mix(sum, page[i % elements_a_page]);
    sum += page.back();
  }
  return sum;
}

}  // namespace

result<evaluation::json> intensity_child(const evaluation::json& assignment) {
  const auto pages = assignment.at("pages").get<std::size_t>();
  const auto steps = assignment.at("steps").get<std::size_t>();
  far::runtime_options chosen;
  chosen.local_bytes = assignment.at("local_bytes");
  chosen.far = network_uri;
  chosen.workers = 1;
  far::runtime here(chosen);
  far::vector<element> all(here, pages * elements_a_page);
  all.for_each_chunk_mut([](std::span<element> part, std::size_t first) {
    for (element& one : part) one = first++;
  });
  return here.run([&] {
    const element expected = walk(all, here, steps);  // warms up
    const far::runtime_statistics before = here.statistics();
    const std::uint64_t start = monotonic_ns();
    FAR_CHECK(walk(all, here, steps) == expected, "two walks find the same");
    const auto elapsed = static_cast<double>(monotonic_ns() - start);
    const far::runtime_statistics after = here.statistics();
    const auto of_page = [&](double value) { return value / static_cast<double>(pages); };
    return evaluation::json{{"metrics",
                             {{"elapsed_ns", of_page(elapsed)},
                              {"waits", of_page(static_cast<double>(after.page_fetches - before.page_fetches))},
                              {"fetched", of_page(static_cast<double>(after.fetched_pages - before.fetched_pages))}}}};
  });
}

}  // namespace far::bench
