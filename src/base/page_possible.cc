// Whether an answer about one page can be right (page_reduction.h). Those about rows are in page_rows.cc.
#include <algorithm>
#include <cstring>

#include "base/number_types.h"
#include "base/page_reduction.h"

namespace far {
namespace {

using detail::key_of;
using detail::number_of;

__extension__ typedef __int128 wide_integer;

template <typename T>
T value_at(const std::byte* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof value, sizeof value);
  return value;
}

template <typename T>
bool is_within(const reduction& how, T number) {
  return number >= number_of<T>(how.lowest) && number <= number_of<T>(how.highest);
}

// Of as many numbers from `least` to `greatest`. Sums of reals are rounded, and may be of any size.
template <typename T>
bool is_possible_sum(std::uint64_t count, T least, T greatest, wide_integer sum) {
  const auto numbers = static_cast<wide_integer>(count);
  return sum >= numbers * static_cast<wide_integer>(least) && sum <= numbers * static_cast<wide_integer>(greatest);
}

template <typename T>
bool is_possible_summary(const reduction& how, std::size_t numbers, const std::byte* found) {
  const auto said = value_at<reduced_numbers>(found, 0);
  if (said.count > numbers) return false;
  if (said.count == 0) return true;
  const T least = number_of<T>(said.least);
  const T greatest = number_of<T>(said.greatest);
  if (!is_within(how, least) || !is_within(how, greatest) || !(least <= greatest)) return false;
  if constexpr (std::is_integral_v<T>) {
    const auto sum = static_cast<wide_integer>(static_cast<unsigned __int128>(said.upper_sum) << 64 | said.sum);
    return is_possible_sum(said.count, least, greatest, sum);
  }
  return true;
}

// No number behind the last one is marked.
bool are_possible_marks(const reduction& how, std::size_t numbers, const std::byte* found) {
  const std::size_t bytes = found_bytes(how);
  if (numbers % 8 != 0 && std::to_integer<unsigned>(found[numbers / 8]) >> numbers % 8 != 0) return false;
  return std::all_of(found + (numbers + 7) / 8, found + bytes, [](std::byte one) { return one == std::byte{0}; });
}

// Of so many parts, no two of which have a number in common.
bool are_possible_counts(std::size_t parts, std::size_t numbers, const std::byte* counts) {
  std::size_t all = 0;
  for (std::size_t i = 0; i < parts; ++i) all += value_at<std::uint16_t>(counts, i);
  return all <= numbers;
}

template <typename T>
bool is_possible_list(const reduction& how, std::size_t numbers, const std::byte* found) {
  constexpr std::size_t most = detail::listed_bytes / sizeof(T);
  const bool is_of_different = how.kind == reduction_kind::distinct;
  const auto count = value_at<std::uint64_t>(found, 0);
  if (count > numbers || (is_of_different && count > most + 1)) return false;
  if (count > most) return true;
  const std::byte* const listed = found + sizeof count;
  for (std::size_t i = 0; i < count; ++i) {
    const T number = value_at<T>(listed, i);
    if (!is_within(how, number)) return false;
    if (is_of_different && i > 0 && key_of(number) <= key_of(value_at<T>(listed, i - 1))) return false;
  }
  return true;
}

// The places follow each other, and the text ends within the characters.
bool are_possible_matches(const reduction& how, std::size_t characters, const std::byte* found) {
  const std::size_t places = characters < how.shift ? 0 : characters - how.shift + 1;
  const auto count = value_at<std::uint64_t>(found, 0);
  if (count > places) return false;
  if (count > detail::most_places(how.groups)) return true;
  std::size_t from = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t place = value_at<std::uint16_t>(found + sizeof count, i);
    if (place < from || place >= places) return false;
    from = place + 1;
  }
  return true;
}

template <typename T>
bool are_possible_groups(const reduction& how, std::size_t numbers, const std::byte* found) {
  const std::byte* const counts = found + found_bytes(how) - detail::group_counts_bytes(how.groups);
  if (!are_possible_counts(how.groups, numbers, counts)) return false;
  for (std::size_t group = 0; group < how.groups; ++group) {
    const auto count = value_at<std::uint16_t>(counts, group);
    if (how.kind == reduction_kind::group_bounds) {
      const T least = value_at<T>(found, 2 * group);
      const T greatest = value_at<T>(found, 2 * group + 1);
      if (count > 0 && !(is_within(how, least) && is_within(how, greatest) && least <= greatest)) return false;
    } else if constexpr (std::is_integral_v<T>) {
      using sum_of_group = std::conditional_t<sizeof(T) == 8, wide_integer, std::int64_t>;
      const wide_integer sum = value_at<sum_of_group>(found, group);
      if (!is_possible_sum(count, number_of<T>(how.lowest), number_of<T>(how.highest), sum)) return false;
    }
  }
  return true;
}

}  // namespace

bool is_possible_of_page(const reduction& how, std::size_t bytes_of_numbers, const std::byte* found) {
  const std::size_t numbers = how.kind == reduction_kind::computed ? 0 : bytes_of_numbers / number_bytes(how.type);
  switch (how.kind) {
    case reduction_kind::marks: return are_possible_marks(how, numbers, found);
    case reduction_kind::counts: return are_possible_counts(found_bytes(how) / sizeof(std::uint16_t), numbers, found);
    case reduction_kind::matches: return are_possible_matches(how, numbers, found);
    // Only the program knows what its function may return.
    case reduction_kind::computed: return true;
    case reduction_kind::of_rows: return false;
    case reduction_kind::summary:
    case reduction_kind::values:
    case reduction_kind::distinct:
    case reduction_kind::group_sums:
    case reduction_kind::group_bounds: break;
  }
  return with_number_type(how.type, [&](auto number) {
    using T = decltype(number);
    if (how.kind == reduction_kind::summary) return is_possible_summary<T>(how, numbers, found);
    if (detail::has_groups(how.kind)) return are_possible_groups<T>(how, numbers, found);
    return is_possible_list<T>(how, numbers, found);
  });
}

}  // namespace far
