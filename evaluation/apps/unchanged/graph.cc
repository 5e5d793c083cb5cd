// graph: builds a graph of random edges and searches it breadth first, on plain memory: scattered accesses to an array
// of edges, and a hot set of vertices. Edges are those of an R-MAT graph (Chakrabarti, Zhan and Faloutsos, SDM 2004),
// with the parameters of Graph500.
#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "apps/random.h"
#include "common/command_line.h"

namespace {

struct options {
  unsigned scale = 21;  // 2^scale vertices
  unsigned edges_per_vertex = 16;
  unsigned searches = 4;
  unsigned threads = 2;
  std::uint64_t seed = 1;
};

struct edge {
  std::uint32_t from;
  std::uint32_t to;
};

struct graph {
  std::vector<std::uint64_t> first;    // of each vertex, its first place in `targets`; one more at the end
  std::vector<std::uint32_t> targets;  // the edges in both directions, sorted by where they come from
};

// Calls body(first, last) for equal parts of 0 to count - 1, each on a thread.
void in_parallel(unsigned threads, std::uint64_t count, const std::function<void(std::uint64_t, std::uint64_t)>& body) {
  std::vector<std::thread> running;
  for (unsigned i = 0; i < threads; ++i) running.emplace_back(body, count * i / threads, count * (i + 1) / threads);
  for (std::thread& one : running) one.join();
}

edge random_edge(const options& chosen, std::uint64_t number) {
  apps::random_words random(apps::mix(chosen.seed) + apps::mix(number));
  edge drawn{0, 0};
  for (unsigned bit = 0; bit < chosen.scale; ++bit) {
    const double where = random.next_unit();
    drawn.from = drawn.from << 1 | static_cast<std::uint32_t>(where >= 0.76);
    drawn.to = drawn.to << 1 | static_cast<std::uint32_t>((where >= 0.57 && where < 0.76) || where >= 0.95);
  }
  return drawn;
}

graph build(const options& chosen) {
  const std::uint64_t vertices = std::uint64_t{1} << chosen.scale;
  std::vector<edge> edges(vertices * chosen.edges_per_vertex);
  in_parallel(chosen.threads, edges.size(), [&](std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i < last; ++i) edges[i] = random_edge(chosen, i);
  });
  graph built;
  std::vector<std::atomic<std::uint64_t>> places(vertices + 1);
  in_parallel(chosen.threads, edges.size(), [&](std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i < last; ++i) {
      places[edges[i].from + 1].fetch_add(1, std::memory_order_relaxed);
      places[edges[i].to + 1].fetch_add(1, std::memory_order_relaxed);
    }
  });
  built.first.resize(vertices + 1);
  for (std::uint64_t i = 0; i < vertices; ++i) {
    built.first[i + 1] = built.first[i] + places[i + 1];
    places[i] = built.first[i];
  }
  built.targets.resize(2 * edges.size());
  in_parallel(chosen.threads, edges.size(), [&](std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i < last; ++i) {
      built.targets[places[edges[i].from].fetch_add(1, std::memory_order_relaxed)] = edges[i].to;
      built.targets[places[edges[i].to].fetch_add(1, std::memory_order_relaxed)] = edges[i].from;
    }
  });
  return built;
}

// The sum of all vertices' distances from `source`, and how many are reached: the same whichever thread was first.
std::uint64_t search(const graph& searched, std::uint32_t source, unsigned threads) {
  std::vector<std::atomic<std::uint8_t>> reached(searched.first.size() - 1);
  std::vector<std::uint32_t> level = {source};
  reached[source] = 1;
  std::uint64_t sum = 1;
  for (std::uint64_t distance = 1; !level.empty(); ++distance) {
    std::vector<std::vector<std::uint32_t>> found(threads);
    in_parallel(threads, threads, [&](std::uint64_t mine, std::uint64_t) {
      for (std::uint64_t i = level.size() * mine / threads; i < level.size() * (mine + 1) / threads; ++i) {
        for (std::uint64_t at = searched.first[level[i]]; at < searched.first[level[i] + 1]; ++at) {
          const std::uint32_t next = searched.targets[at];
          if (reached[next].load(std::memory_order_relaxed) == 0 && reached[next].exchange(1) == 0) {
            found[mine].push_back(next);
          }
        }
      }
    });
    level.clear();
    for (const std::vector<std::uint32_t>& part : found) level.insert(level.end(), part.begin(), part.end());
    sum += level.size() * (distance << 32 | 1);
  }
  return sum;
}

}  // namespace

int main(int count, char** arguments) try {
  options chosen;
  evaluation::command_line line("Builds a random graph and searches it breadth first.");
  line.add_number("--scale", chosen.scale, "2 to the power of it are the vertices", 4, 30);
  line.add_number("--edges", chosen.edges_per_vertex, "for each vertex", 1, 1024);
  line.add_number("--searches", chosen.searches, "from different vertices", 1, 1000);
  line.add_number("--threads", chosen.threads, "of the program", 1, 256);
  line.add_seed(chosen.seed, "of the edges");
  if (const auto status = line.parse(count, arguments)) return *status;
  const auto start = std::chrono::steady_clock::now();
  const graph built = build(chosen);
  std::uint64_t checksum = 0;
  for (unsigned i = 0; i < chosen.searches; ++i) {
    checksum = apps::mix(checksum + search(built, random_edge(chosen, i).from, chosen.threads));
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  fmt::print("{{\"seconds\": {:.6f}, \"checksum\": \"{:016x}\"}}\n", taken.count(), checksum);
} catch (const std::exception& failure) {
  fmt::print(stderr, "graph: {}\n", failure.what());
  return 1;
}
