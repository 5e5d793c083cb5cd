#include "base/page_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/number_types.h"

namespace far {
namespace {

using detail::keyed_rows;
using detail::number_of;
using detail::number_type;

__extension__ typedef __int128 wide_integer;

// So many rows at a time: numbers of 8 bytes fill a page with them, and those of any other type lie in one.
constexpr std::size_t rows_of_step = page_bytes / sizeof(std::uint64_t);

using groups_of_step = std::array<std::uint8_t, rows_of_step>;
static_assert(detail::most_groups < std::numeric_limits<std::uint8_t>::max());

// One more than there are groups, for rows that are in none.
template <typename T>
using one_each = std::array<T, detail::most_groups + 1>;

template <typename T>
using sum_of_group = std::conditional_t<std::is_floating_point_v<T>, double,
                                        std::conditional_t<sizeof(T) == 8, wide_integer, std::int64_t>>;

std::size_t pages_of(number_type type, std::size_t rows) {
  return rows * number_bytes(type) / page_bytes;
}

bool fill_pages(number_type type, std::size_t rows) {
  return rows > 0 && rows * number_bytes(type) % page_bytes == 0;
}

std::size_t bytes_of_sum(number_type type) {
  return with_number_type(type, [](auto number) { return sizeof(sum_of_group<decltype(number)>); });
}

// The numbers of a column from row `first` on.
template <typename T>
const T* numbers_at(std::span<const std::byte* const> pages, std::size_t first) {
  const std::size_t at = first * sizeof(T);
  return reinterpret_cast<const T*>(pages[at / page_bytes] + at % page_bytes);
}

// Adds a key to what its predecessors make. Rows in no group stay there.
template <typename T>
void add_key(const detail::row_key& key, const T* keys, std::uint8_t none, groups_of_step& groups) {
  using bits = std::make_unsigned_t<T>;
  const auto least = static_cast<bits>(key.least);
  for (std::size_t i = 0; i < rows_of_step; ++i) {
    const auto above = static_cast<bits>(static_cast<bits>(keys[i]) - least);
    const bool counts = above < key.count && groups[i] != none;
    groups[i] = counts ? static_cast<std::uint8_t>(groups[i] * key.count + above) : none;
  }
}

// What is found of the numbers of all groups.
template <typename T>
struct found_numbers {
  one_each<sum_of_group<T>> of_page{};  // sums of the page that has begun
  one_each<sum_of_group<T>> sums{};
  one_each<T> least{};
  one_each<T> greatest{};
  one_each<std::uint16_t> counts{};

  void add(const reduction& how, const T* numbers, const groups_of_step& groups) {
    const T lowest = number_of<T>(how.lowest);
    const T highest = number_of<T>(how.highest);
    for (std::size_t i = 0; i < rows_of_step; ++i) {
      const T number = numbers[i];
      const std::size_t group = number >= lowest && number <= highest ? groups[i] : how.groups;
      of_page[group] += static_cast<sum_of_group<T>>(number);
      const bool is_first = counts[group]++ == 0;
      least[group] = is_first || number < least[group] ? number : least[group];
      greatest[group] = is_first || number > greatest[group] ? number : greatest[group];
    }
  }
  void end_page() {
    for (std::size_t group = 0; group < sums.size(); ++group) sums[group] += of_page[group];
    of_page = {};
  }
};

// Calls use(first row, groups of rows_of_step rows) in their order.
template <typename Use>
void visit_steps(const reduction& how, std::span<const std::byte* const> pages, const Use& use) {
  const keyed_rows& rows = *how.rows;
  for (std::size_t first = 0; first < rows.rows; first += rows_of_step) {
    groups_of_step groups{};
    std::span<const std::byte* const> rest = pages;
    for (const detail::row_key& key : std::span(rows.key).first(rows.keys)) {
      with_number_type(key.type, [&](auto number) {
        using T = decltype(number);
        if constexpr (std::is_integral_v<T>) add_key(key, numbers_at<T>(rest, first), how.groups, groups);
      });
      rest = rest.subspan(pages_of(key.type, rows.rows));
    }
    use(first, groups, rest);
  }
}

// The place of a key among the counts of a group: 0: below the buckets; then they; none: above.
constexpr std::size_t above_buckets = std::numeric_limits<std::size_t>::max();
std::size_t place_among(const detail::group_buckets& in, std::uint64_t key, std::size_t buckets) {
  if (key < in.lowest) return 0;
  const std::uint64_t bucket = (key - in.lowest) >> in.shift;
  return bucket < buckets ? bucket + 1 : above_buckets;
}

// The same with buckets.
template <typename T>
struct numbers_in_buckets {
  one_each<T> least{};
  one_each<T> greatest{};
  one_each<std::uint16_t> counts{};
  one_each<std::uint16_t> in_buckets{};
  std::array<std::uint16_t, detail::most_bucket_bytes / sizeof(std::uint16_t)> places{};

  void add(const reduction& how, const T* numbers, const groups_of_step& groups) {
    const T lowest = number_of<T>(how.lowest);
    const T highest = number_of<T>(how.highest);
    const keyed_rows& wanted = *how.rows;
    for (std::size_t i = 0; i < rows_of_step; ++i) {
      const T number = numbers[i];
      const std::size_t group = groups[i];
      if (group >= how.groups || !(number >= lowest && number <= highest)) continue;
      ++counts[group];
      const std::size_t place = place_among(wanted.buckets_of[group], detail::key_of(number), wanted.buckets);
      if (place == above_buckets) continue;
      ++places[group * (wanted.buckets + std::size_t{1}) + place];
      if (place == 0) continue;
      const bool is_first = in_buckets[group]++ == 0;
      least[group] = is_first || number < least[group] ? number : least[group];
      greatest[group] = is_first || number > greatest[group] ? number : greatest[group];
    }
  }
};

// The different numbers in the bucket of each group, in the order of groups and keys, as long as there is room.
template <typename T>
struct listed_rows {
  struct one {
    std::uint64_t key = 0;
    std::uint16_t group = 0;
    std::uint16_t times = 0;

    [[nodiscard]] bool is_before(std::size_t other_group, std::uint64_t other_key) const {
      return group != other_group ? group < other_group : key < other_key;
    }
  };
  std::array<one, std::numeric_limits<std::uint8_t>::max()> all{};
  std::size_t count = 0;
  bool is_too_long = false;

  void add(std::size_t most, std::size_t group, std::uint64_t key) {
    const auto end = all.begin() + static_cast<std::ptrdiff_t>(count);
    const auto at = std::partition_point(all.begin(), end, [&](const one& of) { return of.is_before(group, key); });
    if (at != end && at->group == group && at->key == key) {
      ++at->times;
    } else if (count == most) {
      is_too_long = true;
    } else {
      std::copy_backward(at, end, end + 1);
      *at = {key, static_cast<std::uint16_t>(group), 1};
      ++count;
    }
  }
  void add(const reduction& how, const T* numbers, const groups_of_step& groups) {
    const T lowest = number_of<T>(how.lowest);
    const T highest = number_of<T>(how.highest);
    for (std::size_t i = 0; i < rows_of_step && !is_too_long; ++i) {
      const std::size_t group = groups[i];
      if (group >= how.groups || !(numbers[i] >= lowest && numbers[i] <= highest)) continue;
      const detail::group_buckets& in = how.rows->buckets_of[group];
      const std::uint64_t key = detail::key_of(numbers[i]);
      if (key >= in.lowest && (key - in.lowest) >> in.shift == 0) add(how.rows->listed, group, key);
    }
  }
  // Into zeros.
  void put(const reduction& how, std::byte* to) const {
    if (is_too_long) return;
    std::byte* const numbers = to + how.groups * sizeof(std::uint16_t);
    std::byte* const times = numbers + how.rows->listed * sizeof(T);
    one_each<std::uint16_t> different{};
    for (std::size_t i = 0; i < count; ++i) {
      ++different[all[i].group];
      const T number = detail::number_with_key<T>(all[i].key);
      std::memcpy(numbers + i * sizeof(T), &number, sizeof(T));
      std::memcpy(times + i * sizeof(std::uint16_t), &all[i].times, sizeof(std::uint16_t));
    }
    std::memcpy(to, different.data(), how.groups * sizeof(std::uint16_t));
  }
};

void count_rows(const groups_of_step& groups, one_each<std::uint16_t>& counts) {
  for (const std::uint8_t group : groups) ++counts[group];
}

template <typename T>
std::byte* put(const one_each<T>& values, std::size_t groups, std::byte* to) {
  std::memcpy(to, values.data(), groups * sizeof(T));
  return to + groups * sizeof(T);
}

template <typename T>
T value_of(std::size_t group, const std::byte* values) {
  T value;
  std::memcpy(&value, values + group * sizeof value, sizeof value);
  return value;
}

// Of numbers with a fraction, every sum is: they may be infinite.
template <typename T>
bool is_possible_sum(const reduction& how, std::size_t count, std::size_t group, const std::byte* sums) {
  if constexpr (std::is_integral_v<T>) {
    const wide_integer sum = value_of<sum_of_group<T>>(group, sums);
    const auto numbers = static_cast<wide_integer>(count);
    return sum >= numbers * std::min<wide_integer>(number_of<T>(how.lowest), 0) &&
           sum <= numbers * std::max<wide_integer>(number_of<T>(how.highest), 0);
  }
  return true;
}

template <typename T>
void find(const reduction& how, std::span<const std::byte* const> pages, std::byte* to) {
  one_each<std::uint16_t> rows_of_group{};
  found_numbers<T> found;
  visit_steps(how, pages, [&](std::size_t first, const groups_of_step& groups, std::span<const std::byte* const> of) {
    count_rows(groups, rows_of_group);
    found.add(how, numbers_at<T>(of, first), groups);
    if ((first + rows_of_step) * sizeof(T) % page_bytes == 0) found.end_page();
  });
  const keyed_rows& wanted = *how.rows;
  if (wanted.wants_sums) to = put(found.sums, how.groups, to);
  if (wanted.wants_least) to = put(found.least, how.groups, to);
  if (wanted.wants_greatest) to = put(found.greatest, how.groups, to);
  to = put(rows_of_group, how.groups, to);
  if (wanted.wants_counts) put(found.counts, how.groups, to);
}

template <typename T>
void find_in_buckets(const reduction& how, std::span<const std::byte* const> pages, std::byte* to) {
  one_each<std::uint16_t> rows_of_group{};
  numbers_in_buckets<T> found;
  listed_rows<T> listed;
  visit_steps(how, pages, [&](std::size_t first, const groups_of_step& groups, std::span<const std::byte* const> of) {
    count_rows(groups, rows_of_group);
    found.add(how, numbers_at<T>(of, first), groups);
    if (how.rows->listed > 0) listed.add(how, numbers_at<T>(of, first), groups);
  });
  const keyed_rows& wanted = *how.rows;
  if (wanted.wants_least) to = put(found.least, how.groups, to);
  if (wanted.wants_greatest) to = put(found.greatest, how.groups, to);
  to = put(rows_of_group, how.groups, to);
  if (wanted.wants_counts) to = put(found.counts, how.groups, to);
  const std::size_t bytes_of_places = how.groups * (wanted.buckets + std::size_t{1}) * sizeof(std::uint16_t);
  std::memcpy(to, found.places.data(), bytes_of_places);
  if (wanted.listed > 0) listed.put(how, to + bytes_of_places);
}

// Whether a group may have so many numbers at most at these places, and these bounds.
template <typename T>
bool are_possible_buckets(const reduction& how, std::size_t group, std::size_t most, const std::byte* bounds,
                          const std::byte* places) {
  const keyed_rows& wanted = *how.rows;
  const std::size_t first = group * (wanted.buckets + std::size_t{1});
  std::size_t in_buckets = 0;
  for (std::size_t i = 1; i <= wanted.buckets; ++i) in_buckets += value_of<std::uint16_t>(first + i, places);
  if (in_buckets + value_of<std::uint16_t>(first, places) > most) return false;
  if (in_buckets == 0) return true;
  // The bucket of a bound is not empty.
  const auto is_in_bucket = [&](T number) {
    if (!(number >= number_of<T>(how.lowest) && number <= number_of<T>(how.highest))) return false;
    const std::size_t place = place_among(wanted.buckets_of[group], detail::key_of(number), wanted.buckets);
    return place != 0 && place != above_buckets && value_of<std::uint16_t>(first + place, places) > 0;
  };
  const T least = wanted.wants_least ? value_of<T>(group, bounds) : T{};
  if (wanted.wants_least && !is_in_bucket(least)) return false;
  if (!wanted.wants_greatest) return true;
  const T greatest = value_of<T>(group, bounds + (wanted.wants_least ? how.groups * sizeof(T) : 0));
  return is_in_bucket(greatest) && (!wanted.wants_least || least <= greatest);
}

// Whether the lists have what the buckets count, in their order. A question that has no room for all lists nothing.
template <typename T>
bool are_possible_lists(const reduction& how, const std::byte* places) {
  const std::byte* const different = places + how.groups * 2 * sizeof(std::uint16_t);
  const std::byte* const numbers = different + how.groups * sizeof(std::uint16_t);
  const std::byte* const times = numbers + how.rows->listed * sizeof(T);
  std::size_t at = 0;
  bool is_any_too_long = false;
  for (std::size_t group = 0; group < how.groups; ++group) {
    const std::size_t in_bucket = value_of<std::uint16_t>(2 * group + 1, places);
    const std::size_t count = value_of<std::uint16_t>(group, different);
    if (count > how.rows->listed - at) return false;
    is_any_too_long |= count == 0 && in_bucket > 0;
    std::size_t all_times = 0;
    std::uint64_t key_before = 0;
    for (std::size_t i = 0; i < count; ++i, ++at) {
      const T number = value_of<T>(at, numbers);
      if (!(number >= number_of<T>(how.lowest) && number <= number_of<T>(how.highest))) return false;
      const std::uint64_t key = detail::key_of(number);
      if (place_among(how.rows->buckets_of[group], key, 1) != 1 || (i > 0 && key <= key_before)) return false;
      if (value_of<std::uint16_t>(at, times) == 0) return false;
      key_before = key;
      all_times += value_of<std::uint16_t>(at, times);
    }
    if (count > 0 && all_times != in_bucket) return false;
  }
  return !is_any_too_long || at == 0;
}

bool are_valid_buckets(const reduction& how) {
  const keyed_rows& rows = *how.rows;
  if (rows.wants_sums || how.groups > detail::most_groups_with_buckets) return false;
  if (rows.listed > 0 && (rows.buckets != 1 || rows.wants_least || rows.wants_greatest)) return false;
  const auto is_shift = [](const detail::group_buckets& one) { return one.shift < 64; };
  return std::ranges::all_of(std::span(rows.buckets_of).first(how.groups), is_shift);
}

}  // namespace

bool is_valid_of_rows(const reduction& how) {
  const keyed_rows* const rows = how.rows;
  if (rows == nullptr || how.shift != 0 || rows->keys > detail::most_row_keys) return false;
  if (rows->rows > detail::most_rows || (rows->keys == 0 && rows->buckets == 0)) return false;
  std::size_t groups = 1;
  std::size_t pages = 0;
  for (const detail::row_key& key : std::span(rows->key).first(rows->keys)) {
    if (key.type >= number_type::float32 || !fill_pages(key.type, rows->rows)) return false;
    if (key.count < 1 || key.count > detail::most_groups) return false;
    groups *= key.count;
    pages += pages_of(key.type, rows->rows);
  }
  if (groups != how.groups || groups > detail::most_groups) return false;
  if (rows->buckets > 0 ? !are_valid_buckets(how) : rows->listed > 0) return false;
  if (rows->wants_numbers()) {
    if (!fill_pages(how.type, rows->rows)) return false;
    pages += pages_of(how.type, rows->rows);
  }
  if (rows->buckets > 0)
    return pages <= detail::most_row_pages && found_bytes_of_rows(how) <= detail::most_bucket_bytes;
  return pages <= detail::most_row_pages_without_buckets && found_bytes_of_rows(how) <= detail::most_group_bytes;
}

std::size_t pages_of_rows(const reduction& how) {
  const keyed_rows& rows = *how.rows;
  std::size_t pages = rows.wants_numbers() ? pages_of(how.type, rows.rows) : 0;
  for (const detail::row_key& key : std::span(rows.key).first(rows.keys)) pages += pages_of(key.type, rows.rows);
  return pages;
}

std::size_t found_bytes_of_rows(const reduction& how) {
  const keyed_rows& wanted = *how.rows;
  const std::size_t number = number_bytes(how.type);
  const std::size_t of_group = (wanted.wants_sums ? bytes_of_sum(how.type) : 0) + (wanted.wants_least ? number : 0) +
                               (wanted.wants_greatest ? number : 0) + sizeof(std::uint16_t) +
                               (wanted.wants_counts ? sizeof(std::uint16_t) : 0) +
                               (wanted.buckets > 0 ? (wanted.buckets + std::size_t{1}) * sizeof(std::uint16_t) : 0) +
                               (wanted.listed > 0 ? sizeof(std::uint16_t) : 0);
  return (how.groups * of_group + wanted.listed * (number + sizeof(std::uint16_t)) + 7) / 8 * 8;
}

void find_of_rows(const reduction& how, std::span<const std::byte* const> pages, std::byte* to) {
  std::memset(to, 0, found_bytes_of_rows(how));
  if (how.rows->buckets > 0) {
    return with_number_type(how.type, [&](auto number) { find_in_buckets<decltype(number)>(how, pages, to); });
  }
  if (how.rows->wants_numbers()) {
    return with_number_type(how.type, [&](auto number) { find<decltype(number)>(how, pages, to); });
  }
  one_each<std::uint16_t> rows_of_group{};
  visit_steps(how, pages, [&](std::size_t, const groups_of_step& groups, std::span<const std::byte* const>) {
    count_rows(groups, rows_of_group);
  });
  put(rows_of_group, how.groups, to);
}

bool is_possible_of_rows(const reduction& how, const std::byte* found) {
  const keyed_rows& wanted = *how.rows;
  const std::size_t bounds = (wanted.wants_least ? 1u : 0u) + (wanted.wants_greatest ? 1u : 0u);
  const std::size_t of_group = (wanted.wants_sums ? bytes_of_sum(how.type) : 0) + bounds * number_bytes(how.type);
  const std::byte* const rows = found + how.groups * of_group;
  // Where values are not counted, any number of a group's rows may have one.
  const std::byte* const counts = wanted.wants_counts ? rows + how.groups * sizeof(std::uint16_t) : rows;
  std::size_t rows_of_all = 0;
  for (std::size_t group = 0; group < how.groups; ++group) {
    const std::size_t count = value_of<std::uint16_t>(group, counts);
    if (count > value_of<std::uint16_t>(group, rows)) return false;
    rows_of_all += value_of<std::uint16_t>(group, rows);
    const auto has_possible_sum = [&](auto number) {
      return is_possible_sum<decltype(number)>(how, count, group, found);
    };
    if (wanted.wants_sums && !with_number_type(how.type, has_possible_sum)) return false;
    const auto has_possible_buckets = [&](auto number) {
      const std::byte* const places = counts + how.groups * sizeof(std::uint16_t);
      return are_possible_buckets<decltype(number)>(how, group, count, found, places);
    };
    if (wanted.buckets > 0 && !with_number_type(how.type, has_possible_buckets)) return false;
  }
  const auto has_possible_lists = [&](auto number) {
    return are_possible_lists<decltype(number)>(how, counts + how.groups * sizeof(std::uint16_t));
  };
  if (wanted.listed > 0 && !with_number_type(how.type, has_possible_lists)) return false;
  return rows_of_all <= wanted.rows;
}

std::uint64_t hash_of_pages(std::span<const std::uint64_t> hashes) {
  std::uint64_t all = hashes.size();
  for (const std::uint64_t one : hashes) all = std::rotl((all ^ one) * 0x9e37'79b9'7f4a'7c15u, 29);
  return all;
}

void answer_about_rows(const page_reduction& asked, std::span<const std::byte* const> pages, std::byte* to) {
  find_of_rows(asked.how, pages, to);
  std::array<std::uint64_t, detail::most_row_pages> hashes{};
  for (std::size_t i = 0; i < pages.size(); ++i) hashes[i] = hash_of_pieces(*asked.hash, pages[i]);
  const std::uint64_t check = hash_of_pages(std::span(hashes).first(pages.size()));
  std::memcpy(to + found_bytes_of_rows(asked.how), &check, sizeof check);
}

}  // namespace far
