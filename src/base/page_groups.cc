#include "base/page_groups.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/number_types.h"

namespace far {
namespace {

using detail::number_of;

__extension__ typedef __int128 wide_integer;

// One more than there are groups, for numbers that are in none.
template <typename T>
using one_each = std::array<T, detail::most_groups + 1>;

template <typename T>
using sum_of_group = std::conditional_t<std::is_floating_point_v<T>, double,
                                        std::conditional_t<sizeof(T) == 8, wide_integer, std::int64_t>>;

// Calls take(group, number) in the order of the numbers.
template <typename T, typename Take>
void visit_groups(const reduction& how, std::span<const std::byte> bytes, const std::uint8_t* groups,
                  const Take& take) {
  const T lowest = number_of<T>(how.lowest);
  const T highest = number_of<T>(how.highest);
  const T* const numbers = reinterpret_cast<const T*>(bytes.data());
  const std::size_t size = bytes.size() / sizeof(T);
  for (std::size_t i = 0; i < size; ++i) {
    const bool counts = numbers[i] >= lowest && numbers[i] <= highest && groups[i] < how.groups;
    take(counts ? groups[i] : how.groups, numbers[i]);
  }
}

template <typename T>
void find_sums(const reduction& how, std::span<const std::byte> bytes, const std::uint8_t* groups, std::byte* to,
               std::uint16_t* counts) {
  one_each<sum_of_group<T>> sums{};
  visit_groups<T>(how, bytes, groups, [&](std::size_t group, T number) {
    sums[group] += static_cast<sum_of_group<T>>(number);
    ++counts[group];
  });
  std::memcpy(to, sums.data(), how.groups * sizeof sums[0]);
}

template <typename T>
void find_bounds(const reduction& how, std::span<const std::byte> bytes, const std::uint8_t* groups, std::byte* to,
                 std::uint16_t* counts) {
  one_each<std::array<T, 2>> bounds{};
  visit_groups<T>(how, bytes, groups, [&](std::size_t group, T number) {
    std::array<T, 2>& known = bounds[group];
    const bool is_first = counts[group]++ == 0;
    known[0] = is_first || number < known[0] ? number : known[0];
    known[1] = is_first || number > known[1] ? number : known[1];
  });
  std::memcpy(to, bounds.data(), how.groups * sizeof bounds[0]);
}

// The largest number that they have says "no group".
unsigned group_bits(const reduction& how) {
  return static_cast<unsigned>(std::bit_width(unsigned{how.groups}));
}

}  // namespace

void find_groups(const reduction& how, std::span<const std::byte> numbers, const std::uint8_t* groups, std::byte* to) {
  one_each<std::uint16_t> counts{};
  with_number_type(how.type, [&](auto number) {
    using T = decltype(number);
    if (how.kind == reduction_kind::group_sums) {
      find_sums<T>(how, numbers, groups, to, counts.data());
    } else {
      find_bounds<T>(how, numbers, groups, to, counts.data());
    }
  });
  std::memcpy(to + found_bytes(how) - detail::group_counts_bytes(how.groups), counts.data(),
              how.groups * sizeof counts[0]);
}

std::size_t packed_group_bytes(const reduction& how, std::size_t bytes_of_numbers) {
  return (bytes_of_numbers / number_bytes(how.type) * group_bits(how) + 63) / 64 * 8;
}

void pack_groups(const reduction& how, const std::uint8_t* groups, std::size_t numbers, std::byte* to) {
  const unsigned bits = group_bits(how);
  const std::uint64_t none = (std::uint64_t{1} << bits) - 1;
  std::uint64_t word = 0;
  unsigned used = 0;
  for (std::size_t i = 0; i < numbers; ++i) {
    const std::uint64_t group = std::min<std::uint64_t>(groups[i], none);
    word |= group << used;
    used += bits;
    if (used < 64) continue;
    std::memcpy(to, &word, sizeof word);
    to += sizeof word;
    used -= 64;
    word = used == 0 ? 0 : group >> (bits - used);
  }
  if (used > 0) std::memcpy(to, &word, sizeof word);
}

void unpack_groups(const reduction& how, const std::byte* packed, std::size_t numbers, std::uint8_t* to) {
  const unsigned bits = group_bits(how);
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  std::uint64_t word = 0;
  unsigned left = 0;
  for (std::size_t i = 0; i < numbers; ++i) {
    std::uint64_t group = word;
    word >>= bits;
    if (left < bits) {
      std::memcpy(&word, packed, sizeof word);
      packed += sizeof word;
      group |= word << left;
      word >>= bits - left;
      left += 64;
    }
    left -= bits;
    to[i] = static_cast<std::uint8_t>(group & mask);
  }
}

}  // namespace far
