// far::array: std::array in far memory, of one or several dimensions (AIFM, section 5.1; docs/containers.md).
//
//     far::array<double, 10'000, 10'000> matrix(farheap);
//     const far::scope here(farheap);
//     matrix.deref_mut(here, 17, 4) = 0.5;
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <utility>

#include "far/detail/elements.h"

namespace far {

// A fixed number of elements, value-initialised; the last dimension is contiguous. `Elements` of them share a far
// object, as for far::vector. Functions that take a single index count through the elements of all dimensions, row by
// row. Move-only; an array that was moved from has no elements.
template <typename T, std::size_t Elements, std::size_t... Dims>
class grouped_array : public detail::elements<T, Elements> {
  static_assert(sizeof...(Dims) > 0, "an array has a dimension");
  using base = detail::elements<T, Elements>;

 public:
  static constexpr std::array<std::size_t, sizeof...(Dims)> extents{Dims...};

  explicit grouped_array(const tag& in) : base(in) { this->append_values((Dims * ...)); }
  grouped_array(grouped_array&&) noexcept = default;
  grouped_array& operator=(grouped_array&&) noexcept = default;
  ~grouped_array() = default;

  void swap(grouped_array& other) noexcept {
    grouped_array taken(std::move(other));
    other = std::move(*this);
    *this = std::move(taken);
  }
  friend void swap(grouped_array& a, grouped_array& b) noexcept { a.swap(b); }

  using base::at;
  using base::at_mut;
  using base::deref;
  using base::deref_mut;

  // One element, by an index for each dimension. deref: requires each to be below its extent. at: throws
  // std::out_of_range.
  template <std::convertible_to<std::size_t>... Index>
    requires(sizeof...(Index) == sizeof...(Dims) && sizeof...(Dims) > 1)
  [[nodiscard]] const T& deref(const scope& in, Index... index) const {
    return base::deref(in, flat(index...));
  }
  template <std::convertible_to<std::size_t>... Index>
    requires(sizeof...(Index) == sizeof...(Dims) && sizeof...(Dims) > 1)
  [[nodiscard]] T& deref_mut(const scope& in, Index... index) {
    return base::deref_mut(in, flat(index...));
  }
  template <std::convertible_to<std::size_t>... Index>
    requires(sizeof...(Index) == sizeof...(Dims) && sizeof...(Dims) > 1)
  [[nodiscard]] const T& at(const scope& in, Index... index) const {
    require(index...);
    return base::at(in, flat(index...));
  }
  template <std::convertible_to<std::size_t>... Index>
    requires(sizeof...(Index) == sizeof...(Dims) && sizeof...(Dims) > 1)
  [[nodiscard]] T& at_mut(const scope& in, Index... index) {
    require(index...);
    return base::at_mut(in, flat(index...));
  }

  // The index of an element among all, row by row.
  template <std::convertible_to<std::size_t>... Index>
    requires(sizeof...(Index) == sizeof...(Dims))
  [[nodiscard]] static constexpr std::size_t flat(Index... index) {
    std::size_t all = 0;
    ((all = all * Dims + static_cast<std::size_t>(index)), ...);
    return all;
  }

 private:
  template <typename... Index>
  static void require(Index... index) {
    const auto one = [](std::size_t given, std::size_t extent) {
      if (given >= extent) detail::throw_out_of_range(given, extent);
    };
    (one(static_cast<std::size_t>(index), Dims), ...);
  }
};

template <typename T, std::size_t... Dims>
using array = grouped_array<T, elements_per_object<T>, Dims...>;

}  // namespace far
