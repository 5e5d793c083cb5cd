// gradient: conjugate gradients on a random sparse matrix, in the manner of the NAS benchmark CG (Bailey et al., "The
// NAS parallel benchmarks", 1991): the rows are walked in order, the vector at random places.
#include <cstddef>
#include <utility>
#include <vector>

#include "kernel.h"

namespace {

constexpr std::size_t pairs_per_row = 6;
constexpr std::size_t entries_per_row = 2 * pairs_per_row + 1;
constexpr std::size_t row_bytes = entries_per_row * (sizeof(double) + sizeof(std::uint32_t)) + 5 * sizeof(double);

// Compressed rows.
struct matrix {
  std::vector<std::uint64_t> first;  // of each row, its first place in the others; one more at the end
  std::vector<std::uint32_t> columns;
  std::vector<double> values;

  [[nodiscard]] std::size_t rows() const { return first.size() - 1; }
};

struct coupling {
  std::uint32_t from;
  std::uint32_t to;
  double strength;
};

// Symmetric, and with so large a diagonal that it is positive definite.
matrix make_matrix(std::size_t rows) {
  const auto draw = [rows](std::size_t number) {
    apps::random_words random(apps::mix(number));
    return coupling{static_cast<std::uint32_t>(number % rows), static_cast<std::uint32_t>(random.next() % rows),
                    -random.next_unit()};
  };
  const std::size_t couplings = rows * pairs_per_row;
  matrix made{std::vector<std::uint64_t>(rows + 1), {}, {}};
  for (std::size_t i = 0; i < couplings; ++i) {
    const coupling drawn = draw(i);
    ++made.first[drawn.from + 1];
    ++made.first[drawn.to + 1];
  }
  for (std::size_t row = 0; row < rows; ++row) made.first[row + 1] += made.first[row] + 1;
  made.columns.resize(made.first[rows]);
  made.values.resize(made.first[rows]);
  std::vector<std::uint64_t> places(made.first.begin(), made.first.end() - 1);
  const auto put = [&](std::uint32_t row, std::uint32_t column, double value) {
    const std::uint64_t place = places[row]++;
    made.columns[place] = column;
    made.values[place] = value;
  };
  std::vector<double> diagonal(rows, 1.0);
  for (std::size_t i = 0; i < couplings; ++i) {
    const coupling drawn = draw(i);
    put(drawn.from, drawn.to, drawn.strength);
    put(drawn.to, drawn.from, drawn.strength);
    diagonal[drawn.from] -= drawn.strength;
    diagonal[drawn.to] -= drawn.strength;
  }
  for (std::size_t row = 0; row < rows; ++row) {
    put(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(row), diagonal[row]);
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
  const matrix system = make_matrix(asked.bytes / row_bytes);
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
