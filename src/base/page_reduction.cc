#include "base/page_reduction.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/number_types.h"

namespace far {
namespace {

using detail::bits_of;
using detail::number_of;
using detail::number_type;

// Compilers make vector instructions of loops over so many independent numbers.
constexpr std::size_t lanes = 8;

// A sum of 64 bit integers, which may need more. Its halves are added apart: a page has too few numbers for either to
// overflow.
struct wide_sum {
  std::int64_t upper = 0;
  std::uint64_t lower = 0;
};

template <typename T>
using sum_in_lane =
    std::conditional_t<std::is_floating_point_v<T>, double, std::conditional_t<sizeof(T) == 8, wide_sum, std::int64_t>>;

template <typename T>
void add_number(T number, bool counts, wide_sum& to) {
  to.upper += counts ? static_cast<std::int64_t>(number >> 32) : 0;
  to.lower += counts ? static_cast<std::uint32_t>(number) : 0;
}
template <typename T>
void add_number(T number, bool counts, std::int64_t& to) {
  to += counts ? static_cast<std::int64_t>(number) : 0;
}
template <typename T>
void add_number(T number, bool counts, double& to) {
  to += counts ? static_cast<double>(number) : 0.0;
}

__int128 whole(const wide_sum& sum) {
  return static_cast<__int128>(sum.upper) * (__int128{1} << 32) + static_cast<__int128>(sum.lower);
}
__int128 whole(std::int64_t sum) {
  return sum;
}

void store_sum(__int128 sum, reduced_numbers& to) {
  to.sum = static_cast<std::uint64_t>(sum);
  to.upper_sum = static_cast<std::uint64_t>(static_cast<unsigned __int128>(sum) >> 64);
}
__int128 sum_of(const reduced_numbers& from) {
  return static_cast<__int128>(static_cast<unsigned __int128>(from.upper_sum) << 64 | from.sum);
}

template <typename T>
reduced_numbers reduce_all(const reduction& how, std::span<const std::byte> bytes) {
  const T lowest = number_of<T>(how.lowest);
  const T highest = number_of<T>(how.highest);
  const T* const numbers = reinterpret_cast<const T*>(bytes.data());
  const std::size_t size = bytes.size() / sizeof(T);
  std::array<std::uint32_t, lanes> count{};
  std::array<sum_in_lane<T>, lanes> sum{};
  std::array<T, lanes> least;
  std::array<T, lanes> greatest;
  least.fill(highest);
  greatest.fill(lowest);
  const auto take = [&](std::size_t lane, T number) {
    const bool counts = number >= lowest && number <= highest;
    count[lane] += counts ? 1 : 0;
    add_number(number, counts, sum[lane]);
    least[lane] = counts && number < least[lane] ? number : least[lane];
    greatest[lane] = counts && number > greatest[lane] ? number : greatest[lane];
  };
  std::size_t done = 0;
  for (; done + lanes <= size; done += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) take(lane, numbers[done + lane]);
  }
  for (std::size_t lane = 0; done < size; ++done, ++lane) take(lane, numbers[done]);

  reduced_numbers found;
  for (const std::uint32_t one : count) found.count += one;
  if constexpr (std::is_floating_point_v<T>) {
    double total = 0;
    for (const double one : sum) total += one;
    found.sum = bits_of(total);
  } else {
    __int128 total = 0;
    for (const auto& one : sum) total += whole(one);
    store_sum(total, found);
  }
  found.least = bits_of(*std::min_element(least.begin(), least.end()));
  found.greatest = bits_of(*std::max_element(greatest.begin(), greatest.end()));
  return found;
}

}  // namespace

std::size_t number_bytes(number_type type) {
  return with_number_type(type, [](auto number) { return sizeof number; });
}

reduced_numbers reduce(const reduction& how, std::span<const std::byte> numbers) {
  return with_number_type(how.type, [&](auto number) { return reduce_all<decltype(number)>(how, numbers); });
}

void add(const reduction& how, const reduced_numbers& found, reduced_numbers& to) {
  if (found.count == 0) return;
  if (to.count == 0) {
    to = found;
    return;
  }
  to.count += found.count;
  with_number_type(how.type, [&](auto number) {
    using T = decltype(number);
    if constexpr (std::is_floating_point_v<T>) {
      to.sum = bits_of(number_of<double>(to.sum) + number_of<double>(found.sum));
    } else {
      store_sum(sum_of(to) + sum_of(found), to);
    }
    if (number_of<T>(found.least) < number_of<T>(to.least)) to.least = found.least;
    if (number_of<T>(found.greatest) > number_of<T>(to.greatest)) to.greatest = found.greatest;
  });
}

}  // namespace far
