// kmeans: Lloyd's algorithm on points of eight dimensions (S. Lloyd, "Least squares quantization in PCM", 1982).
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

#include "kernel.h"

namespace {

constexpr std::size_t dimensions = 8;
constexpr std::size_t clusters = 10;

using point = std::array<float, dimensions>;

struct cluster {
  std::array<double, dimensions> sum{};
  std::uint64_t points = 0;
};

std::vector<point> make_points(std::size_t count) {
  std::vector<point> made(count);
  apps::random_words random(1);
  for (point& one : made) {
    const auto middle = static_cast<float>(random.next() % clusters);
    for (std::size_t d = 0; d < dimensions; ++d) {
      one[d] = middle * static_cast<float>(d + 1) + 4 * static_cast<float>(random.next_unit());
    }
  }
  return made;
}

std::uint32_t nearest(const point& one, const std::array<point, clusters>& middles) {
  float least = std::numeric_limits<float>::max();
  std::uint32_t best = 0;
  for (std::uint32_t c = 0; c < clusters; ++c) {
    float distance = 0;
    for (std::size_t d = 0; d < dimensions; ++d) {
      const float apart = one[d] - middles[c][d];
      distance += apart * apart;
    }
    if (distance < least) {
      least = distance;
      best = c;
    }
  }
  return best;
}

// Assigns each point to a cluster, and moves the middles of the clusters to those of their points.
void step(const std::vector<point>& points, std::vector<std::uint32_t>& owners, std::array<point, clusters>& middles) {
  std::array<cluster, clusters> found{};
  for (std::size_t i = 0; i < points.size(); ++i) {
    owners[i] = nearest(points[i], middles);
    cluster& joined = found[owners[i]];
    ++joined.points;
    for (std::size_t d = 0; d < dimensions; ++d) joined.sum[d] += static_cast<double>(points[i][d]);
  }
  for (std::size_t c = 0; c < clusters; ++c) {
    if (found[c].points == 0) continue;
    for (std::size_t d = 0; d < dimensions; ++d) {
      middles[c][d] = static_cast<float>(found[c].sum[d] / static_cast<double>(found[c].points));
    }
  }
}

kernels::outcome work(kernels::size asked) {
  const std::vector<point> points = make_points(asked.bytes / (sizeof(point) + sizeof(std::uint32_t)));
  std::vector<std::uint32_t> owners(points.size());
  std::array<point, clusters> middles;
  for (std::size_t c = 0; c < clusters; ++c) middles[c] = points[c * points.size() / clusters];
  const kernels::stopwatch timed;
  for (unsigned round = 0; round < asked.rounds; ++round) step(points, owners, middles);
  const double seconds = timed.seconds();
  kernels::checksum found;
  for (const std::uint32_t owner : owners) found.add(std::uint64_t{owner});
  for (const point& middle : middles) {
    for (const float coordinate : middle) found.add(static_cast<double>(coordinate));
  }
  return {seconds, found.value()};
}

}  // namespace

int main(int count, char** arguments) {
  return kernels::run(count, arguments, work);
}
