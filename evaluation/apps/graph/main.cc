// graph: PageRank or triangles of a graph that grows in batches (the programs of GraphOne and Aspen in Atlas, section
// 5). evaluation/apps/README.md says how to run it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/program.h"
#include "apps/random.h"
#include "graph.h"

namespace {

struct options {
  std::string job = "pagerank";
  unsigned scale = 17;
  unsigned degree = 16;
  unsigned batches = 3;
  unsigned iterations = 10;
  std::uint64_t seed = 1;
};

// R-MAT (Chakrabarti, Zhan and Faloutsos, 2004), with the shares of Graph500.
graph::edge next_edge(apps::random_words& random, unsigned scale) {
  graph::edge fresh = {0, 0};
  for (unsigned bit = 0; bit < scale; ++bit) {
    const double chance = random.next_unit();
    fresh.from = fresh.from << 1 | (chance >= 0.76);
    fresh.to = fresh.to << 1 | ((chance >= 0.57 && chance < 0.76) || chance >= 0.95);
  }
  return fresh;
}

// New edges in both directions, in buckets by their first vertex, so that each can be sorted in a little local memory.
class updates {
 public:
  updates(memory::runtime& in, unsigned scale) : in_(in), shift_(scale > 6 ? scale - 6 : 0) {
    for (unsigned i = 0; i < 64; ++i) buckets_.emplace_back(in);
  }

  void load(const options& chosen, unsigned batch) {
    apps::random_words random(apps::mix(chosen.seed) + batch);
    const std::uint64_t all = (std::uint64_t{chosen.degree} << chosen.scale) / 2 / chosen.batches;
    for (std::uint64_t i = 0; i < all; ++i) {
      const graph::edge fresh = next_edge(random, chosen.scale);
      if (fresh.from == fresh.to) continue;
      buckets_[fresh.from >> shift_].push_back(fresh);
      buckets_[fresh.to >> shift_].push_back({fresh.to, fresh.from});
    }
  }

  void apply(graph::adjacency& to) {
    std::vector<graph::edge> sorted;
    for (memory::vector<graph::edge>& bucket : buckets_) {
      sorted.clear();
      while (sorted.size() < bucket.size()) {
        const memory::scope here(in_);
        const auto some = bucket.chunk(here, sorted.size());
        sorted.insert(sorted.end(), some.begin(), some.end());
      }
      bucket.clear();
      std::ranges::sort(sorted);
      to.add(sorted);
    }
  }

 private:
  memory::runtime& in_;
  unsigned shift_;
  std::vector<memory::vector<graph::edge>> buckets_;
};

evaluation::json summary_of(const memory::vector<double>& ranks, memory::runtime& memory) {
  double sum = 0;
  double highest = 0;
  std::uint64_t checksum = 0;
  for (std::size_t first = 0; first < ranks.size();) {
    const memory::scope here(memory);
    const auto part = ranks.chunk(here, first);
    for (const double rank : part) {
      sum += rank;
      highest = std::max(highest, rank);
      checksum = apps::mix(checksum ^ std::bit_cast<std::uint64_t>(rank));
    }
    first += part.size();
  }
  return {{"sum", sum}, {"highest", highest}, {"checksum", fmt::format("{:016x}", checksum)}};
}

evaluation::json run(const options& chosen, memory::runtime& memory, apps::phases& timed) {
  graph::adjacency grown(memory, graph::vertex{1} << chosen.scale);
  updates coming(memory, chosen.scale);
  evaluation::json results = evaluation::json::array();
  for (unsigned batch = 0; batch < chosen.batches; ++batch) {
    timed.run("load", [&] { coming.load(chosen, batch); });
    timed.run("update", [&] { coming.apply(grown); });
    evaluation::json found;
    if (chosen.job == "pagerank") {
      memory::vector<double> ranks(memory, grown.vertices());
      timed.run("pagerank", [&] { grown.rank(chosen.iterations, ranks); });
      timed.run("verify", [&] { found = summary_of(ranks, memory); });
    } else {
      timed.run("triangles", [&] { found["triangles"] = grown.count_triangles(); });
    }
    found["edges"] = grown.edges() / 2;
    results.push_back(found);
  }
  return {{"batches", results}};
}

}  // namespace

int main(int count, char** arguments) {
  options chosen;
  apps::program program("graph", "Ranks the vertices of a growing graph, or counts its triangles.");
  program.options().add_choice("--job", chosen.job, "what to find after each batch", {"pagerank", "triangles"});
  program.options().add_number("--scale", chosen.scale, "there are 2^N vertices", 1u, 31u);
  program.options().add_number("--degree", chosen.degree, "edges drawn for each vertex, on average", 1u, 1024u);
  program.options().add_number("--batches", chosen.batches, "in which the edges come", 1u, 1024u);
  program.options().add_number("--iterations", chosen.iterations, "of PageRank", 1u, 1000u);
  program.options().add_seed(chosen.seed, "the edges are a function of it");
  return program.run(count, arguments,
                     [&](memory::runtime& memory, apps::phases& timed) { return run(chosen, memory, timed); });
}
