#include "tally.h"

#include <cstdio>

#include "base/check.h"

namespace far::simulation {
namespace {

using world_kind = run_options::far_tier;

constexpr std::uint64_t enough_seeds = 100;
constexpr std::uint64_t enough_for_rare_things = 1000;

std::vector<tally_line> lines_of(const report& one, world_kind world) {
  const engine::statistics& seen = one.statistics;
  std::vector<tally_line> lines = {{"slices", one.slices},
                                   {"validations", one.validations},
                                   {"accesses", one.accesses},
                                   {"moves", one.moves},
                                   {"populates", one.populates},
                                   {"overwrites", one.overwrites},
                                   {"drops behind", one.drops_behind},
                                   {"object reads", one.object_reads},
                                   {"found copies", one.copies_found},
                                   {"lost object reads", one.lost_object_reads},
                                   {"misses", seen.misses},
                                   {"rescues", seen.rescues},
                                   {"zero fills", seen.zero_fills},
                                   {"write faults", seen.write_faults},
                                   {"prefetched pages", seen.prefetched_pages},
                                   {"prefetch hits", seen.prefetch_hits},
                                   {"pages that came around", seen.around_pages},
                                   {"clean evictions", seen.clean_evictions},
                                   {"written pages", seen.written_pages}};
  if (world == world_kind::memory) {
    lines.push_back({"lost pages", one.lost_pages});
    lines.push_back({"lies", one.lies});
    lines.push_back({"forks", one.forks});
    lines.push_back({"failed transfers", seen.backend_errors});
    lines.push_back({"pages over budget", seen.over_budget_pages});
  }
  // Other simulated stores compute nothing.
  if (world == world_kind::memory || world == world_kind::network) {
    lines.push_back({"answers", one.answers});
    lines.push_back({"answers about rows", one.answers_about_rows});
  }
  if (world == world_kind::network) {
    lines.push_back({"function calls", one.function_calls});
    lines.push_back({"function results", one.function_results});
  }
  for (const cluster::count& server : one.servers) lines.push_back({server.name, server.number, server.is_rare});
  return lines;
}

}  // namespace

const char* name_of(world_kind world) {
  switch (world) {
    case world_kind::memory: return "plain";
    case world_kind::replicated: return "replicated";
    case world_kind::parity: return "parity";
    case world_kind::network: return "network";
  }
  return "?";
}

void tally::add(const report& one, world_kind world) {
  const std::vector<tally_line> lines = lines_of(one, world);
  FAR_CHECK(lines.size() <= most_lines, "a tally has room for every line");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    names_[i] = lines[i].name;
    are_rare_[i] = lines[i].is_rare;
    numbers_[i] += lines[i].number;
  }
  ++seeds_;
  operations_ += one.operations;
  accesses_ += one.accesses;
  validations_ += one.validations;
  digest_ += one.digest;
}

bool tally::print_and_judge() const {
  bool has_all = true;
  for (std::size_t i = 0; i < most_lines && names_[i] != nullptr; ++i) {
    std::printf("%18s %llu\n", names_[i].load(), static_cast<unsigned long long>(numbers_[i].load()));
    has_all &= numbers_[i] > 0 || (are_rare_[i] && seeds() < enough_for_rare_things);
  }
  if (has_all || seeds() < enough_seeds) return true;
  std::fprintf(stderr, "simulation: the counts of 0 above were never simulated\n");
  return false;
}

void tally::print_summary(const run_options& first, std::uint64_t failures) const {
  const auto shown = [](std::uint64_t number) { return static_cast<unsigned long long>(number); };
  std::printf(
      "%s: %llu seeds from %llu, %llu operations, %llu accesses, %llu validations, digest %016llx, %llu failures\n",
      name_of(first.tier), shown(seeds() + failures), shown(first.seed), shown(operations_), shown(accesses_),
      shown(validations_), shown(digest_), shown(failures));
}

}  // namespace far::simulation
