#include "backend/striped/parity_code.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/striped/galois.h"
#include "base/check.h"

namespace far::backend {
namespace {

using row_of_factors = std::array<std::uint8_t, 2 * most_data>;

void add_row(row_of_factors& into, const row_of_factors& from, std::uint8_t factor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] ^= galois::multiply(from[i], factor);
}

void scale_row(row_of_factors& row, std::uint8_t factor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) row[i] = galois::multiply(row[i], factor);
}

}  // namespace

std::string text_of(const parity_shape& shape) {
  return std::to_string(shape.data) + "+" + std::to_string(shape.parity);
}

parity_code::parity_code(parity_shape shape) : shape_(shape) {
  FAR_CHECK(shape.data >= 2 && shape.data <= most_data && shape.parity >= 1 && shape.parity <= most_parity,
            "a code that exists");
}

std::uint8_t parity_code::factor(std::size_t place, std::size_t column) const {
  if (place < shape_.data) return place == column ? 1 : 0;
  return place == shape_.data ? std::uint8_t{1} : galois::power_of_two(static_cast<unsigned>(column));
}

void parity_code::encode(std::size_t number, std::span<const std::byte* const> data, std::byte* into,
                         std::size_t count) const {
  std::memset(into, 0, count);
  for (std::size_t column = 0; column < shape_.data; ++column) {
    if (data[column] == nullptr) continue;
    galois::add_multiple(into, data[column], factor(shape_.data + number, column), count);
  }
}

// Gauss-Jordan elimination of the sources' factors beside the identity.
parity_code::factors parity_code::recover(std::span<const std::uint8_t> sources, std::size_t wanted) const {
  const std::size_t size = shape_.data;
  FAR_CHECK(sources.size() == size, "as many sources as data pages");
  std::array<row_of_factors, most_data> rows{};
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t column = 0; column < size; ++column) rows[i][column] = factor(sources[i], column);
    rows[i][size + i] = 1;
  }
  for (std::size_t column = 0; column < size; ++column) {
    std::size_t pivot = column;
    while (pivot < size && rows[pivot][column] == 0) ++pivot;
    FAR_CHECK(pivot < size, "any `data` different pages of a row are independent");
    std::swap(rows[pivot], rows[column]);
    scale_row(rows[column], galois::inverse(rows[column][column]), 2 * size);
    for (std::size_t other = 0; other < size; ++other) {
      if (other != column) add_row(rows[other], rows[column], rows[other][column], 2 * size);
    }
  }
  factors found{};
  for (std::size_t column = 0; column < size; ++column) {
    const std::uint8_t of_column = factor(wanted, column);
    for (std::size_t i = 0; i < size; ++i) found[i] ^= galois::multiply(of_column, rows[column][size + i]);
  }
  return found;
}

}  // namespace far::backend
