#include "page_streams.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <unordered_map>

#include "base/units.h"
#include "trace/reader.h"

namespace far::bench {
namespace {

using random_bits = std::mt19937_64;

class popularity {
 public:
  popularity(std::uint32_t pages, double exponent, random_bits& random) : areas_(pages), pages_(pages) {
    double sum = 0;
    for (std::uint32_t rank = 0; rank < pages; ++rank) areas_[rank] = sum += 1 / std::pow(rank + 1.0, exponent);
    std::iota(pages_.begin(), pages_.end(), 0u);
    std::shuffle(pages_.begin(), pages_.end(), random);
  }
  [[nodiscard]] std::uint32_t draw(random_bits& random) const {
    const double at = std::uniform_real_distribution(0.0, areas_.back())(random);
    const auto rank = std::lower_bound(areas_.begin(), areas_.end(), at) - areas_.begin();
    return pages_[std::min(static_cast<std::size_t>(rank), pages_.size() - 1)];
  }

 private:
  std::vector<double> areas_;  // up to and with each rank
  std::vector<std::uint32_t> pages_;
};

// Consecutive accesses to one page are one: no policy can tell them apart.
class stream_of_arrays {
 public:
  // Returns where an array of so many bytes begins, in bytes.
  std::uint64_t add(std::uint64_t bytes) {
    const std::uint64_t start = end_;
    end_ = round_up(end_ + bytes, page_bytes);
    return start;
  }
  void access(std::uint64_t at) {
    const auto page = static_cast<std::uint32_t>(at >> page_shift);
    if (stream_.empty() || stream_.back() != page) stream_.push_back(page);
  }
  [[nodiscard]] page_stream take() { return std::move(stream_); }

 private:
  std::uint64_t end_ = 0;
  page_stream stream_;
};

// Edges in compressed rows; a vertex is the target of many edges when its number has few bits.
struct graph {
  std::vector<std::uint32_t> first_edge;
  std::vector<std::uint32_t> targets;
};

graph random_graph(std::uint32_t vertices, random_bits& random) {
  constexpr unsigned edges_a_vertex = 16;
  graph created;
  for (std::uint32_t vertex = 0; vertex < vertices; ++vertex) {
    created.first_edge.push_back(static_cast<std::uint32_t>(created.targets.size()));
    for (unsigned edge = 0; edge < edges_a_vertex; ++edge) {
      const std::uint64_t bits = random() & random();
      created.targets.push_back(static_cast<std::uint32_t>((random() % 2 == 0 ? bits : random()) % vertices));
    }
  }
  created.first_edge.push_back(static_cast<std::uint32_t>(created.targets.size()));
  return created;
}

}  // namespace

page_stream popular_pages(std::uint32_t pages, std::size_t accesses, double exponent) {
  random_bits random(1);
  const popularity popular(pages, exponent, random);
  page_stream stream(accesses);
  for (std::uint32_t& page : stream) page = popular.draw(random);
  return stream;
}

page_stream popular_pages_beside_a_walk(std::uint32_t pages, std::size_t accesses) {
  random_bits random(2);
  const popularity popular(pages, 0.99, random);
  page_stream stream(accesses);
  std::uint32_t walked = 0;
  for (std::uint32_t& page : stream) page = random() % 4 != 0 ? popular.draw(random) : pages + walked++ % pages;
  return stream;
}

page_stream shifting_popularity(std::uint32_t pages, std::size_t accesses) {
  random_bits random(3);
  page_stream stream;
  for (int phase = 0; phase < 4; ++phase) {
    const popularity popular(pages, 0.99, random);
    for (std::size_t i = 0; i < accesses / 4; ++i) stream.push_back(popular.draw(random));
  }
  return stream;
}

page_stream any_pages(std::uint32_t pages, std::size_t accesses) {
  random_bits random(4);
  page_stream stream(accesses);
  for (std::uint32_t& page : stream) page = static_cast<std::uint32_t>(random() % pages);
  return stream;
}

page_stream walk_again_and_again(std::uint32_t pages, std::size_t accesses) {
  page_stream stream(accesses);
  for (std::size_t i = 0; i < accesses; ++i) stream[i] = static_cast<std::uint32_t>(i % pages);
  return stream;
}

page_stream graph_searches(std::uint32_t vertices) {
  random_bits random(5);
  const graph searched = random_graph(vertices, random);
  stream_of_arrays memory;
  const std::uint64_t offsets = memory.add(searched.first_edge.size() * 4);
  const std::uint64_t edges = memory.add(searched.targets.size() * 4);
  const std::uint64_t marks = memory.add(vertices * 4ul);
  const std::uint64_t queue = memory.add(vertices * 4ul);
  for (int search = 0; search < 3; ++search) {
    std::vector<bool> seen(vertices, false);
    std::vector<std::uint32_t> reached{static_cast<std::uint32_t>(random() % vertices)};
    seen[reached[0]] = true;
    for (std::size_t at = 0; at < reached.size(); ++at) {
      const std::uint32_t vertex = reached[at];
      memory.access(queue + at * 4);
      memory.access(offsets + vertex * 4ul);
      for (std::uint32_t edge = searched.first_edge[vertex]; edge < searched.first_edge[vertex + 1]; ++edge) {
        memory.access(edges + edge * 4ul);
        const std::uint32_t target = searched.targets[edge];
        memory.access(marks + target * 4ul);
        if (seen[target]) continue;
        seen[target] = true;
        memory.access(queue + reached.size() * 4);
        reached.push_back(target);
      }
    }
  }
  return memory.take();
}

result<page_stream> misses_of_trace(const std::string& path) {
  const result<trace::trace> traced = trace::read_trace(path);
  if (!traced) return traced.error();
  std::unordered_map<std::uint64_t, std::uint32_t> numbers;
  page_stream stream;
  for (const trace::miss_record& miss : traced.value().misses) {
    const auto number = numbers.try_emplace(miss.address >> page_shift, static_cast<std::uint32_t>(numbers.size()));
    stream.push_back(number.first->second);
  }
  if (stream.empty()) return error{"the trace '" + path + "' has no misses; trace the program with less --local", 0};
  return stream;
}

}  // namespace far::bench
