// Misses of each policy on streams of accesses, beside LRU and the optimum; no memory is moved.
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <utility>

#include "benchmark.h"
#include "page_streams.h"

namespace far::bench {
namespace {

constexpr std::array policies = {"2q", "second-chance", "fifo"};
constexpr std::array<unsigned, 3> percents = {10, 25, 50};
constexpr const char* metric = "misses_over_lru";

struct named_stream {
  std::string name;
  page_stream accesses;
};

result<std::vector<named_stream>> streams_for(const settings& chosen) {
  std::vector<named_stream> streams;
  if (!chosen.trace.empty()) {
    result<page_stream> traced = misses_of_trace(chosen.trace);
    if (!traced) return traced.error();
    streams.push_back({chosen.trace, std::move(traced).value()});
    return streams;
  }
  const std::uint32_t pages = chosen.quick ? 4096 : 32768;
  const std::size_t accesses = std::size_t{pages} * 60;
  streams.push_back({"popular pages (Zipf, 0.99)", popular_pages(pages, accesses, 0.99)});
  streams.push_back({"popular pages beside a walk", popular_pages_beside_a_walk(pages, accesses)});
  streams.push_back({"popularity that shifts", shifting_popularity(pages, accesses)});
  streams.push_back({"any pages", any_pages(pages, accesses / 4)});
  streams.push_back({"a walk over all, again and again", walk_again_and_again(pages, accesses / 4)});
  streams.push_back({"searches in a graph", graph_searches(pages * 8)});
  return streams;
}

result<void> compare(const named_stream& stream, unsigned percent, report& figures) {
  const auto frames = static_cast<std::uint32_t>(std::uint64_t{distinct_pages(stream.accesses)} * percent / 100 + 1);
  const std::string row = fmt::format("{}, {}% local", stream.name, percent);
  const auto lru = static_cast<double>(misses_under_lru(stream.accesses, frames));
  const auto add = [&](const char* policy, double misses) {
    figures.add({row, policy, 1}, metric, misses / lru);
    figures.add({row, policy, 1}, "misses_per_access", misses / static_cast<double>(stream.accesses.size()));
  };
  add("optimum", static_cast<double>(least_misses(stream.accesses, frames)));
  add("LRU", lru);
  for (const char* const policy : policies) {
    const result<std::uint64_t> misses = misses_under(policy, stream.accesses, frames);
    if (!misses) return misses.error();
    add(policy, static_cast<double>(misses.value()));
    if (policy == policies[0]) {
      figures.aim(fmt::format("{}: misses of {}, over those of LRU", row, policy),
                  static_cast<double>(misses.value()) / lru, "", 1.1, false);
    }
  }
  return {};
}

}  // namespace

result<outcome> run_replacement(const settings& chosen) {
  const result<std::vector<named_stream>> streams = streams_for(chosen);
  if (!streams) return streams.error();
  report figures("replacement");
  for (const named_stream& stream : streams.value()) {
    for (const unsigned percent : percents) {
      if (stop_requested()) return error{"stopped by a signal", EINTR};
      fmt::print(stderr, "replacement: {}, {}% local\n", stream.name, percent);
      const result<void> done = compare(stream, percent, figures);
      if (!done) return done.error();
    }
  }
  figures.note("the policies see misses alone, as under the hardware guard without hints; LRU sees every access");
  return outcome{std::move(figures),
                 {{{metric, "misses / LRU", 1, 3}, {"misses_per_access", "misses an access", 1, 4}}, "", ""}};
}

}  // namespace far::bench
