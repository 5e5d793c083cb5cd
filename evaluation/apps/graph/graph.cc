#include "graph.h"

#include <algorithm>
#include <iterator>

namespace graph {
namespace {

// Vertices that a task takes at a time.
constexpr std::size_t part = 256;
constexpr double damping = 0.85;

}  // namespace

std::vector<vertex> adjacency::sorted_neighbours(vertex from) const {
  std::vector<vertex> all;
  {
    const memory::scope here(in_);
    all.reserve(vertices_.deref(here, from).degree);
    for_each_neighbour(here, from, [&](vertex neighbour) { all.push_back(neighbour); });
  }
  std::ranges::sort(all);
  return all;
}

void adjacency::add(std::span<const edge> batch) {
  std::vector<vertex> wanted;
  std::vector<vertex> fresh;
  for (auto first = batch.begin(); first != batch.end();) {
    wanted.clear();
    fresh.clear();
    auto last = first;
    for (; last != batch.end() && last->from == first->from; ++last) {
      if (wanted.empty() || wanted.back() != last->to) wanted.push_back(last->to);
    }
    std::ranges::set_difference(wanted, sorted_neighbours(first->from), std::back_inserter(fresh));
    append(first->from, fresh);
    first = last;
  }
}

void adjacency::append(vertex to, std::span<const vertex> fresh) {
  edges_ += fresh.size();
  head now = vertices_.read(to);
  now.degree += static_cast<std::uint32_t>(fresh.size());
  while (!fresh.empty()) {
    {
      const memory::scope here(in_);
      block* const newest = now.newest == 0 ? nullptr : &blocks_.deref_mut(here, now.newest - 1);
      for (; newest != nullptr && newest->count < block::room && !fresh.empty(); fresh = fresh.subspan(1)) {
        newest->neighbours[newest->count++] = fresh.front();
      }
    }
    if (fresh.empty()) break;
    blocks_.push_back(block{{}, 0, now.newest});
    now.newest = static_cast<std::uint32_t>(blocks_.size());
  }
  vertices_.write(to, now);
}

// By pulling: each vertex adds up what its neighbours give. So no two tasks write to one place, and sums are always
// made in the same order.
void adjacency::rank(unsigned iterations, memory::vector<double>& ranks) const {
  const std::size_t count = vertices();
  memory::vector<double> given(in_, count);
  memory::vector<double> received(in_, count);
  const auto give = [&](bool first_time) {
    apps::in_parallel(in_, count, part, [&](std::size_t first, std::size_t last) {
      const memory::scope here(in_);
      for (std::size_t v = first; v < last; ++v) {
        const double rank = (1 - damping) / static_cast<double>(count) + damping * received.deref(here, v);
        const std::uint32_t degree = vertices_.deref(here, v).degree;
        ranks.deref_mut(here, v) = first_time ? 1 / static_cast<double>(count) : rank;
        given.deref_mut(here, v) = degree == 0 ? 0 : ranks.deref(here, v) / degree;
      }
    });
  };
  give(true);
  for (unsigned i = 0; i < iterations; ++i) {
    apps::in_parallel(in_, count, part, [&](std::size_t first, std::size_t last) {
      for (std::size_t v = first; v < last; ++v) {
        const memory::scope here(in_);
        double sum = 0;
        for_each_neighbour(here, static_cast<vertex>(v), [&](vertex from) { sum += given.deref(here, from); });
        received.deref_mut(here, v) = sum;
      }
    });
    give(false);
  }
}

// Each triangle from its lowest vertex, over its middle one.
std::uint64_t adjacency::count_triangles(vertex lowest, std::vector<bool>& marks) const {
  const std::vector<vertex> neighbours = sorted_neighbours(lowest);
  const auto above = std::ranges::upper_bound(neighbours, lowest);
  for (auto one = above; one != neighbours.end(); ++one) marks[*one] = true;
  std::uint64_t found = 0;
  for (auto middle = above; middle != neighbours.end(); ++middle) {
    const memory::scope here(in_);
    for_each_neighbour(here, *middle, [&](vertex highest) { found += highest > *middle && marks[highest]; });
  }
  for (auto one = above; one != neighbours.end(); ++one) marks[*one] = false;
  return found;
}

std::uint64_t adjacency::count_triangles() const {
  std::atomic<std::uint64_t> found{0};
  apps::in_parallel(in_, vertices(), part, [&](std::size_t first, std::size_t last) {
    std::vector<bool> marks(vertices());
    std::uint64_t here = 0;
    for (std::size_t v = first; v < last; ++v) here += count_triangles(static_cast<vertex>(v), marks);
    found += here;
  });
  return found;
}

}  // namespace graph
