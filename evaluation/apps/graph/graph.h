// An undirected graph that grows: for each vertex a chain of blocks with its neighbours, in the manner of GraphOne
// (Kumar and Huang, FAST 2019), and what Atlas asks of such graphs (section 5).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/containers.h"

namespace graph {

using vertex = std::uint32_t;

struct edge {
  vertex from;
  vertex to;

  auto operator<=>(const edge&) const = default;
};

class adjacency {
 public:
  adjacency(memory::runtime& in, vertex vertices) : in_(in), vertices_(in, vertices), blocks_(in) {}

  [[nodiscard]] vertex vertices() const { return static_cast<vertex>(vertices_.size()); }
  // Of both directions.
  [[nodiscard]] std::uint64_t edges() const { return edges_; }

  // Adds those that are not there yet. Requires: edges in order; the other direction is added by the caller.
  void add(std::span<const edge> batch);

  // After so many iterations. The same for the same edges in the same batches.
  void rank(unsigned iterations, memory::vector<double>& ranks) const;

  [[nodiscard]] std::uint64_t count_triangles() const;

 private:
  // 64 bytes.
  struct block {
    static constexpr std::size_t room = 14;
    std::array<vertex, room> neighbours;
    std::uint32_t count;
    std::uint32_t next;  // an index, plus one; 0: none
  };
  struct head {
    std::uint32_t newest;  // as block::next
    std::uint32_t degree;
  };

  // Calls visit(neighbour) for each; no references are kept.
  template <typename Visit>
  void for_each_neighbour(const memory::scope& in, vertex from, const Visit& visit) const {
    for (std::uint32_t at = vertices_.deref(in, from).newest; at != 0;) {
      const block& one = blocks_.deref(in, at - 1);
      for (std::uint32_t i = 0; i < one.count; ++i) visit(one.neighbours[i]);
      at = one.next;
    }
  }
  [[nodiscard]] std::vector<vertex> sorted_neighbours(vertex from) const;
  void append(vertex to, std::span<const vertex> fresh);
  [[nodiscard]] std::uint64_t count_triangles(vertex lowest, std::vector<bool>& marks) const;

  memory::runtime& in_;
  memory::vector<head> vertices_;
  memory::vector<block> blocks_;
  std::uint64_t edges_ = 0;
};

}  // namespace graph
