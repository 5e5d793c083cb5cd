// gradient: conjugate gradients on a random sparse matrix, in the manner of the NAS benchmark CG (Bailey et al., "The
// NAS parallel benchmarks", 1991): the rows are walked in order, the vector at random places.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

#include "kernel.h"

namespace {

constexpr unsigned couplings = 12;  // of each row, beside its diagonal
constexpr std::size_t row_bytes = (couplings + 1) * (sizeof(double) + sizeof(std::uint32_t)) + 6 * sizeof(double);
// Odd, and its inverse modulo 2^64.
constexpr std::uint64_t scatter = 0x9e3779b97f4a7c15;
constexpr std::uint64_t gather = 0xf1de83e19937733d;
static_assert(scatter * gather == 1);

// Compressed rows.
struct matrix {
  std::vector<std::uint64_t> first;  // of each row, its first place in the others; one more at the end
  std::vector<std::uint32_t> columns;
  std::vector<double> values;

  [[nodiscard]] std::size_t rows() const { return first.size() - 1; }
};

// The row that `row` is coupled with, and the other way round: rows that differ by a mask where both are scattered.
std::uint64_t partner(std::uint64_t row, std::uint64_t mask, std::uint64_t rows) {
  return (((row * scatter) ^ mask) * gather) & (rows - 1);
}

// Symmetric, and with so large a diagonal that it is positive definite. Made row by row. Requires: a power of two.
matrix make_matrix(std::size_t rows) {
  matrix made{std::vector<std::uint64_t>(rows + 1), std::vector<std::uint32_t>(rows * (couplings + 1)),
              std::vector<double>(rows * (couplings + 1))};
  for (std::size_t row = 0; row < rows; ++row) {
    double diagonal = 1;
    std::size_t place = made.first[row];
    for (unsigned i = 0; i < couplings; ++i) {
      const std::uint64_t other = partner(row, apps::mix(i + 1) | 1, rows);
      const double strength = apps::random_words(std::min(row, other) * couplings + i).next_unit();
      diagonal += strength;
      made.columns[place] = static_cast<std::uint32_t>(other);
      made.values[place++] = -strength;
    }
    made.columns[place] = static_cast<std::uint32_t>(row);
    made.values[place++] = diagonal;
    made.first[row + 1] = place;
  }
  return made;
}

void multiply(const matrix& by, const std::vector<double>& vector, std::vector<double>& product) {
  for (std::size_t row = 0; row < by.rows(); ++row) {
    double sum = 0;
    for (std::uint64_t at = by.first[row]; at < by.first[row + 1]; ++at) sum += by.values[at] * vector[by.columns[at]];
    product[row] = sum;
  }
}

double dot(const std::vector<double>& one, const std::vector<double>& other) {
  double sum = 0;
  for (std::size_t i = 0; i < one.size(); ++i) sum += one[i] * other[i];
  return sum;
}

// one += factor * other.
void add(std::vector<double>& one, double factor, const std::vector<double>& other) {
  for (std::size_t i = 0; i < one.size(); ++i) one[i] += factor * other[i];
}

kernels::outcome work(kernels::size asked) {
  const matrix system = make_matrix(std::bit_floor(asked.bytes / row_bytes));
  std::vector<double> solution(system.rows());
  std::vector<double> residual(system.rows(), 1.0);
  std::vector<double> direction = residual;
  std::vector<double> product(system.rows());
  double error = dot(residual, residual);
  const kernels::stopwatch timed;
  for (unsigned round = 0; round < asked.rounds; ++round) {
    multiply(system, direction, product);
    const double along = error / dot(direction, product);
    add(solution, along, direction);
    add(residual, -along, product);
    const double before = std::exchange(error, dot(residual, residual));
    const double turn = error / before;
    for (std::size_t i = 0; i < direction.size(); ++i) direction[i] = residual[i] + turn * direction[i];
  }
  const double seconds = timed.seconds();
  kernels::checksum found;
  found.add(error);
  found.add(solution);
  return {seconds, found.value()};
}

}  // namespace

int main(int count, char** arguments) {
  return kernels::run(count, arguments, work);
}
