// The code of a row: `data` pages and `parity` pages, any `data` of which give all of the others.
//
// The first parity page is the sum of the data pages, the second one the sum of 2^column * page (Anvin, "The
// mathematics of RAID-6", 2004). With at most two parity pages, every choice of `data` pages determines the rest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace far::backend {

inline constexpr std::size_t most_data = 8;
inline constexpr std::size_t most_parity = 2;
inline constexpr std::size_t most_places = most_data + most_parity;
inline constexpr std::size_t most_choices = most_data + 1;

// Places of a row are numbered: first the data columns, then the parity pages.
struct parity_shape {
  std::size_t data = 0;
  std::size_t parity = 0;

  [[nodiscard]] constexpr std::size_t places() const { return data + parity; }
  // From how many sets of `data` others a page can be computed: all others, or all but one.
  [[nodiscard]] constexpr std::size_t choices() const { return parity == 1 ? 1 : data + 1; }
  bool operator==(const parity_shape&) const = default;
};

// As the user writes it.
[[nodiscard]] std::string text_of(const parity_shape& shape);

class parity_code {
 public:
  // Requires: 2 <= data <= most_data, 1 <= parity <= most_parity.
  explicit parity_code(parity_shape shape);

  [[nodiscard]] const parity_shape& shape() const { return shape_; }

  // The factor of data column `column` in the page of `place`.
  [[nodiscard]] std::uint8_t factor(std::size_t place, std::size_t column) const;

  // Computes parity page `number`. A null pointer in `data` is a page of zeros.
  void encode(std::size_t number, std::span<const std::byte* const> data, std::byte* into, std::size_t count) const;

  // The factors f with page(wanted) = sum of f[i] * page(sources[i]). Requires: shape().data sources, all different,
  // none of them `wanted`.
  using factors = std::array<std::uint8_t, most_data>;
  [[nodiscard]] factors recover(std::span<const std::uint8_t> sources, std::size_t wanted) const;

 private:
  const parity_shape shape_;
};

}  // namespace far::backend
