// multigrid: V-cycles for Poisson's equation on a grid of three dimensions, in the manner of the NAS benchmark MG
// (Bailey et al., "The NAS parallel benchmarks", 1991). Values belong to cells; outside the grid they are 0.
#include <array>
#include <cstddef>
#include <vector>

#include "kernel.h"

namespace {

constexpr double smoothing = 0.8 / 6;  // damped Jacobi
constexpr std::size_t coarsest = 4;

// A grid with a border of one cell around it.
struct level {
  std::array<std::size_t, 3> cells;
  std::size_t row;    // from a cell to the next along the second dimension, and
  std::size_t plane;  // along the third
  std::vector<double> solution;
  std::vector<double> source;
  std::vector<double> residual;

  explicit level(std::array<std::size_t, 3> size)
      : cells(size),
        row(size[0] + 2),
        plane(row * (size[1] + 2)),
        solution(plane * (size[2] + 2)),
        source(solution.size()),
        residual(solution.size()) {}

  [[nodiscard]] std::size_t line(std::size_t y, std::size_t z) const { return (z + 1) * plane + (y + 1) * row + 1; }
};

void find_residual(level& on) {
  for (std::size_t z = 0; z < on.cells[2]; ++z) {
    for (std::size_t y = 0; y < on.cells[1]; ++y) {
      const double* const u = &on.solution[on.line(y, z)];
      const double* const f = &on.source[on.line(y, z)];
      double* __restrict const r = &on.residual[on.line(y, z)];
      const double* const before = u - on.row;
      const double* const behind = u + on.row;
      const double* const below = u - on.plane;
      const double* const above = u + on.plane;
      for (std::size_t x = 0; x < on.cells[0]; ++x) {
        r[x] = f[x] - (6 * u[x] - (u + x)[-1] - u[x + 1] - before[x] - behind[x] - below[x] - above[x]);
      }
    }
  }
}

void smooth(level& on) {
  find_residual(on);
  double* __restrict const u = on.solution.data();
  const double* __restrict const r = on.residual.data();
  for (std::size_t i = 0; i < on.solution.size(); ++i) u[i] += smoothing * r[i];
}

// The coarse source is the mean of eight residuals, times four for twice the distance.
void restrict_to(const level& fine, level& coarse) {
  for (std::size_t z = 0; z < coarse.cells[2]; ++z) {
    for (std::size_t y = 0; y < coarse.cells[1]; ++y) {
      const double* const r = &fine.residual[fine.line(2 * y, 2 * z)];
      double* const f = &coarse.source[coarse.line(y, z)];
      double* const u = &coarse.solution[coarse.line(y, z)];
      for (std::size_t x = 0; x < coarse.cells[0]; ++x) {
        const double* const one = r + 2 * x;
        const double* const other = one + fine.plane;
        f[x] = 0.5 * (one[0] + one[1] + one[fine.row] + one[fine.row + 1] + other[0] + other[1] + other[fine.row] +
                      other[fine.row + 1]);
        u[x] = 0;
      }
    }
  }
}

void prolong(const level& coarse, level& fine) {
  for (std::size_t z = 0; z < fine.cells[2]; ++z) {
    for (std::size_t y = 0; y < fine.cells[1]; ++y) {
      double* const u = &fine.solution[fine.line(y, z)];
      const double* const c = &coarse.solution[coarse.line(y / 2, z / 2)];
      for (std::size_t x = 0; x < fine.cells[0]; ++x) u[x] += c[x / 2];
    }
  }
}

void cycle(std::vector<level>& levels, std::size_t at) {
  level& fine = levels[at];
  if (at + 1 == levels.size()) {
    for (int i = 0; i < 8; ++i) smooth(fine);
    return;
  }
  smooth(fine);
  find_residual(fine);
  restrict_to(fine, levels[at + 1]);
  cycle(levels, at + 1);
  prolong(levels[at + 1], fine);
  smooth(fine);
}

std::vector<level> make_levels(std::uint64_t bytes) {
  std::array<std::size_t, 3> cells = {16, 16, 16};
  constexpr std::size_t cell_bytes = 3 * sizeof(double) * 8 / 7 + 1;
  for (std::size_t i = 0; 2 * cells[0] * cells[1] * cells[2] * cell_bytes <= bytes; i = (i + 1) % 3) cells[i] *= 2;
  std::vector<level> made;
  while (true) {
    made.emplace_back(cells);
    if (cells[2] <= coarsest) break;
    for (std::size_t& one : cells) one /= 2;
  }
  return made;
}

kernels::outcome work(kernels::size asked) {
  std::vector<level> levels = make_levels(asked.bytes);
  level& finest = levels.front();
  apps::random_words random(1);
  // Charges at a few places, as in the NAS benchmark.
  for (int i = 0; i < 20; ++i) {
    const std::size_t place = finest.line(random.next() % finest.cells[1], random.next() % finest.cells[2]);
    finest.source[place + random.next() % finest.cells[0]] = i % 2 == 0 ? 1 : -1;
  }
  const kernels::stopwatch timed;
  for (unsigned round = 0; round < asked.rounds; ++round) cycle(levels, 0);
  const double seconds = timed.seconds();
  kernels::checksum found;
  found.add(finest.solution);
  return {seconds, found.value()};
}

}  // namespace

int main(int count, char** arguments) {
  return kernels::run(count, arguments, work);
}
