// fourier: fast Fourier transforms in three dimensions, in the manner of the NAS benchmark FT (Bailey et al., "The NAS
// parallel benchmarks", 1991): blocks of lines are gathered to a buffer, transformed, and put back.
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include "kernel.h"

namespace {

// Not std::complex, whose product looks for infinities.
struct complex {
  double real = 0;
  double imaginary = 0;

  friend complex operator+(complex a, complex b) { return {a.real + b.real, a.imaginary + b.imaginary}; }
  friend complex operator-(complex a, complex b) { return {a.real - b.real, a.imaginary - b.imaginary}; }
  friend complex operator*(complex a, complex b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
  }
  friend complex operator*(complex a, double b) { return {a.real * b, a.imaginary * b}; }
};

constexpr std::size_t point_bytes = sizeof(complex) + sizeof(double);
constexpr std::size_t block_lines = 16;

using extents = std::array<std::size_t, 3>;  // powers of two; neighbours along the first are neighbours in memory

extents fit(std::uint64_t bytes) {
  extents chosen = {16, 16, 16};
  for (std::size_t i = 0; 2 * chosen[0] * chosen[1] * chosen[2] * point_bytes <= bytes; i = (i + 1) % 3) chosen[i] *= 2;
  return chosen;
}

// The transform of one length (Stockham's, radix 2), of block_lines lines at a time.
class transform {
 public:
  explicit transform(std::size_t length) : length_(length), buffer_(length * block_lines) {
    for (std::size_t i = 0; i < length / 2; ++i) {
      const double angle = -2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(length);
      roots_.push_back({std::cos(angle), std::sin(angle)});
    }
  }

  // `lines` has block_lines numbers for each place, and what comes out replaces it.
  void apply(std::vector<complex>& lines) {
    for (std::size_t groups = length_ / 2, together = 1; groups >= 1; groups /= 2, together *= 2) {
      for (std::size_t group = 0; group < groups; ++group) {
        butterflies(&lines[group * together * block_lines], &lines[(group + groups) * together * block_lines],
                    &buffer_[2 * group * together * block_lines], together * block_lines, roots_[group * together]);
      }
      lines.swap(buffer_);
    }
  }

 private:
  static void butterflies(const complex* one, const complex* other, complex* to, std::size_t count, complex root) {
    for (std::size_t i = 0; i < count; ++i) {
      const complex sum = one[i] + other[i];
      const complex difference = (one[i] - other[i]) * root;
      to[i] = sum;
      to[i + count] = difference;
    }
  }

  std::size_t length_;
  std::vector<complex> roots_;
  std::vector<complex> buffer_;
};

// Transforms all lines along the first dimension: block_lines neighbouring lines are turned into the buffer.
void along_first(std::vector<complex>& grid, const extents& sizes) {
  transform lines(sizes[0]);
  std::vector<complex> block(sizes[0] * block_lines);
  for (std::size_t start = 0; start < grid.size(); start += sizes[0] * block_lines) {
    for (std::size_t line = 0; line < block_lines; ++line) {
      for (std::size_t x = 0; x < sizes[0]; ++x) block[x * block_lines + line] = grid[start + line * sizes[0] + x];
    }
    lines.apply(block);
    for (std::size_t line = 0; line < block_lines; ++line) {
      for (std::size_t x = 0; x < sizes[0]; ++x) grid[start + line * sizes[0] + x] = block[x * block_lines + line];
    }
  }
}

// Along another one, with `stride` from place to place: neighbours along the first dimension are transformed together.
void along(std::vector<complex>& grid, std::size_t length, std::size_t stride) {
  transform lines(length);
  std::vector<complex> block(length * block_lines);
  for (std::size_t outer = 0; outer < grid.size(); outer += length * stride) {
    for (std::size_t start = outer; start < outer + stride; start += block_lines) {
      for (std::size_t place = 0; place < length; ++place) {
        for (std::size_t line = 0; line < block_lines; ++line) {
          block[place * block_lines + line] = grid[start + place * stride + line];
        }
      }
      lines.apply(block);
      for (std::size_t place = 0; place < length; ++place) {
        for (std::size_t line = 0; line < block_lines; ++line) {
          grid[start + place * stride + line] = block[place * block_lines + line];
        }
      }
    }
  }
}

kernels::outcome work(kernels::size asked) {
  const extents sizes = fit(asked.bytes);
  std::vector<complex> grid(sizes[0] * sizes[1] * sizes[2]);
  std::vector<double> factors(grid.size());
  apps::random_words random(1);
  for (complex& one : grid) one = {random.next_unit(), random.next_unit()};
  for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = 1.0 / (1.0 + static_cast<double>(i % 61) / 64);
  const double norm = 1 / std::sqrt(static_cast<double>(grid.size()));
  const kernels::stopwatch timed;
  for (unsigned round = 0; round < asked.rounds; ++round) {
    for (std::size_t i = 0; i < grid.size(); ++i) grid[i] = grid[i] * (factors[i] * norm);
    along_first(grid, sizes);
    along(grid, sizes[1], sizes[0]);
    along(grid, sizes[2], sizes[0] * sizes[1]);
  }
  const double seconds = timed.seconds();
  kernels::checksum found;
  for (const complex& one : grid) {
    found.add(one.real);
    found.add(one.imaginary);
  }
  return {seconds, found.value()};
}

}  // namespace

int main(int count, char** arguments) {
  return kernels::run(count, arguments, work);
}
