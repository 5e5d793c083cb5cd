// The answers about one page: the summary is in page_reduction.cc.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/number_types.h"
#include "base/page_groups.h"
#include "base/page_reduction.h"
#include "base/page_rows.h"

namespace far {
namespace {

using detail::has_groups;
using detail::key_of;
using detail::number_of;

template <typename T>
bool is_within(T number, T lowest, T highest) {
  return number >= lowest && number <= highest;
}

template <typename T>
std::span<const T> numbers_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

std::size_t buckets_of(const reduction& how) {
  return with_number_type(how.type, [&](auto number) {
    using T = decltype(number);
    return ((key_of(number_of<T>(how.highest)) - key_of(number_of<T>(how.lowest))) >> how.shift) + 1;
  });
}

template <typename T>
void find_marks(const reduction& how, std::span<const T> numbers, std::byte* to) {
  const T lowest = number_of<T>(how.lowest);
  const T highest = number_of<T>(how.highest);
  for (std::size_t first = 0; first < numbers.size(); first += 8) {
    unsigned marks = 0;
    const std::size_t end = std::min<std::size_t>(8, numbers.size() - first);
    for (std::size_t i = 0; i < end; ++i) marks |= is_within(numbers[first + i], lowest, highest) ? 1u << i : 0u;
    to[first / 8] = static_cast<std::byte>(marks);
  }
}

// Numbers outside the interval are counted in a bucket behind the last one. Those of both halves of the page are
// counted apart, because a counter that was just written cannot be read at once.
template <typename T>
void find_counts(const reduction& how, std::span<const T> numbers, std::byte* to) {
  const T lowest = number_of<T>(how.lowest);
  const T highest = number_of<T>(how.highest);
  const std::uint64_t first_key = key_of(lowest);
  std::array<std::array<std::uint16_t, detail::most_buckets + 1>, 2> counts{};
  const auto bucket_of = [&](T number) -> std::size_t {
    return is_within(number, lowest, highest) ? (key_of(number) - first_key) >> how.shift : detail::most_buckets;
  };
  const std::size_t half = numbers.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    ++counts[0][bucket_of(numbers[i])];
    ++counts[1][bucket_of(numbers[half + i])];
  }
  if (numbers.size() % 2 != 0) ++counts[0][bucket_of(numbers.back())];
  const std::size_t buckets = buckets_of(how);
  for (std::size_t i = 0; i < buckets; ++i) counts[0][i] = static_cast<std::uint16_t>(counts[0][i] + counts[1][i]);
  std::memcpy(to, counts[0].data(), buckets * sizeof(std::uint16_t));
}

template <typename T>
void store_list(std::uint64_t count, const T* listed, std::byte* to) {
  std::memcpy(to, &count, sizeof count);
  if (count <= detail::listed_bytes / sizeof(T)) std::memcpy(to + sizeof count, listed, count * sizeof(T));
}

template <typename T>
void find_values(const reduction& how, std::span<const T> numbers, std::byte* to) {
  const T lowest = number_of<T>(how.lowest);
  const T highest = number_of<T>(how.highest);
  constexpr std::size_t most = detail::listed_bytes / sizeof(T);
  std::array<T, most + 1> listed{};
  std::uint64_t count = 0;
  for (const T number : numbers) {
    // The last place gets what there is no room for.
    listed[std::min<std::uint64_t>(count, most)] = number;
    count += is_within(number, lowest, highest) ? 1 : 0;
  }
  store_list(count, listed.data(), to);
}

// Open addressing in a table that is never more than half full.
template <typename T>
void find_distinct(const reduction& how, std::span<const T> numbers, std::byte* to) {
  const T lowest = number_of<T>(how.lowest);
  const T highest = number_of<T>(how.highest);
  constexpr std::size_t most = detail::listed_bytes / sizeof(T);
  constexpr std::size_t places = 256;
  std::array<std::uint64_t, places> keys;
  std::array<bool, places> is_used{};
  std::array<std::uint64_t, most + 1> found{};
  std::size_t count = 0;
  for (const T number : numbers) {
    if (!is_within(number, lowest, highest)) continue;
    const std::uint64_t key = key_of(number);
    std::size_t at = key * 0x9e3779b97f4a7c15u >> 56;
    while (is_used[at] && keys[at] != key) at = (at + 1) % places;
    if (is_used[at]) continue;
    is_used[at] = true;
    keys[at] = key;
    found[count++] = key;
    if (count > most) break;
  }
  std::array<T, most + 1> listed{};
  std::sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count));
  for (std::size_t i = 0; i < count; ++i) listed[i] = detail::number_with_key<T>(found[i]);
  store_list(count, listed.data(), to);
}

// Every place where the text begins, and the ends of the bytes, in which a text may begin or end that crosses them.
void find_matches(const reduction& how, std::span<const std::byte> bytes, std::byte* to) {
  std::array<std::byte, detail::most_text_bytes> text;
  std::memcpy(text.data(), &how.lowest, sizeof how.lowest);
  std::memcpy(text.data() + sizeof how.lowest, &how.highest, sizeof how.highest);
  const std::size_t most = detail::most_places(how.groups);
  std::array<std::uint16_t, detail::most_places(0)> listed{};
  std::uint64_t count = 0;
  const std::byte* const end = bytes.data() + bytes.size();
  for (const std::byte* at = bytes.data();; ++at) {
    at = static_cast<const std::byte*>(memmem(at, static_cast<std::size_t>(end - at), text.data(), how.shift));
    if (at == nullptr) break;
    if (count < most) listed[count] = static_cast<std::uint16_t>(at - bytes.data());
    ++count;
  }
  std::memcpy(to, &count, sizeof count);
  if (count <= most) std::memcpy(to + sizeof count, listed.data(), count * sizeof listed[0]);
  std::byte* const ends = to + sizeof count + detail::most_places_bytes(how.groups);
  const std::size_t shown = std::min(bytes.size(), detail::most_text_bytes);
  std::memcpy(ends, bytes.data(), shown);
  std::memcpy(ends + detail::most_text_bytes, end - shown, shown);
}

}  // namespace

bool is_valid(const reduction& how) {
  if (how.type > detail::last_number_type) return false;
  if (how.kind == reduction_kind::of_rows) return is_valid_of_rows(how);
  if (how.kind > detail::last_kind_of_page) return false;
  if (how.kind == reduction_kind::computed) {
    return how.function != nullptr && how.function->result_bytes % 8 == 0 &&
           how.function->result_bytes <= detail::most_function_result &&
           how.function->argument_bytes <= detail::most_function_arguments;
  }
  if (how.kind == reduction_kind::matches) {
    return number_bytes(how.type) == 1 && how.shift >= 1 && how.shift <= detail::most_text_bytes &&
           how.groups <= detail::most_places(0);
  }
  if (has_groups(how.kind)) {
    return how.shift == 0 && how.groups >= 1 && how.groups <= detail::most_groups &&
           found_bytes(how) <= detail::most_group_bytes;
  }
  if (how.groups != 0) return false;
  if (how.kind != reduction_kind::counts) return how.shift == 0;
  if (how.shift >= 64) return false;
  const bool is_interval = with_number_type(how.type, [&](auto number) {
    using T = decltype(number);
    return number_of<T>(how.lowest) <= number_of<T>(how.highest);
  });
  // Without the 1 that might overflow.
  return is_interval && buckets_of(how) - 1 < detail::most_buckets;
}

std::size_t found_bytes(const reduction& how) {
  switch (how.kind) {
    case reduction_kind::summary: return sizeof(reduced_numbers);
    case reduction_kind::marks: return page_bytes / number_bytes(how.type) / 8;
    case reduction_kind::counts: return (buckets_of(how) * sizeof(std::uint16_t) + 7) / 8 * 8;
    case reduction_kind::matches:
      return sizeof(std::uint64_t) + detail::most_places_bytes(how.groups) + 2 * detail::most_text_bytes;
    case reduction_kind::group_sums:
    case reduction_kind::group_bounds: {
      const bool is_integer = how.type < detail::number_type::float32;
      return detail::group_values_bytes(how.kind, number_bytes(how.type), is_integer, how.groups) +
             detail::group_counts_bytes(how.groups);
    }
    case reduction_kind::computed: return how.function->result_bytes;
    case reduction_kind::of_rows: return found_bytes_of_rows(how);
    case reduction_kind::values:
    case reduction_kind::distinct: break;
  }
  return sizeof(std::uint64_t) + detail::listed_bytes;
}

void find(const reduction& how, std::span<const std::byte> numbers, std::byte* to, const std::uint8_t* groups) {
  if (how.kind == reduction_kind::summary) {
    const reduced_numbers found = reduce(how, numbers);
    std::memcpy(to, &found, sizeof found);
    return;
  }
  std::memset(to, 0, found_bytes(how));
  if (how.kind == reduction_kind::computed) {
    return how.function->call_here(*how.function, numbers.data(), numbers.size(), to);
  }
  if (how.kind == reduction_kind::matches) return find_matches(how, numbers, to);
  if (has_groups(how.kind)) return find_groups(how, numbers, groups, to);
  with_number_type(how.type, [&](auto number) {
    const std::span<const decltype(number)> all = numbers_of<decltype(number)>(numbers);
    switch (how.kind) {
      case reduction_kind::summary:
      case reduction_kind::matches:
      case reduction_kind::group_sums:
      case reduction_kind::group_bounds:
      case reduction_kind::computed:
      case reduction_kind::of_rows: break;
      case reduction_kind::marks: return find_marks(how, all, to);
      case reduction_kind::counts: return find_counts(how, all, to);
      case reduction_kind::values: return find_values(how, all, to);
      case reduction_kind::distinct: return find_distinct(how, all, to);
    }
  });
}

void answer(const reduction& how, const page_hasher& hash, const std::uint8_t* groups, const std::byte* page,
            std::span<const std::byte> numbers, std::byte* to) {
  find(how, numbers, to, groups);
  const std::uint64_t check = hash_of_pieces(hash, page);
  std::memcpy(to + found_bytes(how), &check, sizeof check);
}

void answer(const page_reduction& asked, const std::byte* page, std::span<const std::byte> numbers, std::byte* to) {
  if (!has_groups(asked.how.kind)) return answer(asked.how, *asked.hash, nullptr, page, numbers, to);
  std::array<std::uint8_t, page_bytes> groups;
  unpack_groups(asked.how, asked.groups, numbers.size() / number_bytes(asked.how.type), groups.data());
  answer(asked.how, *asked.hash, groups.data(), page, numbers, to);
}

reduced_page reduce_page(const page_reduction& asked, const std::byte* page, std::span<const std::byte> numbers) {
  return {reduce(asked.how, numbers), hash_of_pieces(*asked.hash, page)};
}

}  // namespace far
