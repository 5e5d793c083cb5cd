// Questions about a sequence of numbers as a whole, and the parts of the answer; see far/summary.h and far/query.h.
// Plain values, because they also travel to memory servers.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace far::detail {

enum class number_type : std::uint8_t { int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64 };
inline constexpr number_type last_number_type = number_type::float64;

template <typename T>
concept reducible = (std::is_integral_v<T> && !std::is_same_v<std::remove_cv_t<T>, bool> && sizeof(T) <= 8) ||
                    std::is_same_v<T, float> || std::is_same_v<T, double>;

template <reducible T>
[[nodiscard]] constexpr number_type number_type_of() {
  if constexpr (std::is_same_v<T, float>) {
    return number_type::float32;
  } else if constexpr (std::is_same_v<T, double>) {
    return number_type::float64;
  } else {
    const auto first = std::is_signed_v<T> ? number_type::int8 : number_type::uint8;
    return static_cast<number_type>(static_cast<unsigned>(first) + std::countr_zero(sizeof(T)));
  }
}

// A number of any of the types, in its own representation; the bytes above are 0.
template <reducible T>
[[nodiscard]] std::uint64_t bits_of(T number) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof number);
  return bits;
}
template <reducible T>
[[nodiscard]] T number_of(std::uint64_t bits) {
  T number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

// Unsigned keys in the order of the numbers. -0 has the key of 0. Requires: not NaN.
template <reducible T>
[[nodiscard]] constexpr std::uint64_t key_of(T number) {
  if constexpr (std::is_floating_point_v<T>) {
    using bits_type = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    constexpr bits_type sign = bits_type{1} << (8 * sizeof(T) - 1);
    const auto bits = std::bit_cast<bits_type>(number == 0 ? T{0} : number);
    return (bits & sign) != 0 ? static_cast<bits_type>(~bits) : static_cast<bits_type>(bits | sign);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(number)) ^ std::uint64_t{1} << 63;
  } else {
    return number;
  }
}
template <reducible T>
[[nodiscard]] constexpr T number_with_key(std::uint64_t key) {
  if constexpr (std::is_floating_point_v<T>) {
    using bits_type = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    constexpr bits_type sign = bits_type{1} << (8 * sizeof(T) - 1);
    const auto bits = static_cast<bits_type>(key);
    return std::bit_cast<T>((bits & sign) != 0 ? static_cast<bits_type>(bits ^ sign) : static_cast<bits_type>(~bits));
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(key ^ std::uint64_t{1} << 63));
  } else {
    return static_cast<T>(key);
  }
}

// What is asked about the numbers of an interval. Its answer about one page, in bytes:
enum class reduction_kind : std::uint8_t {
  summary,   // 40: reduced_numbers
  marks,     // a bit for each number that a page has room for, set if it is in the interval; bit i % 8 of byte i / 8
  counts,    // 2 for each bucket, rounded up to 8: how many numbers are in it
  values,    // 8: how many numbers are in the interval; 112: they, in order, if there is room for all, else zeros
  distinct,  // the same of different numbers, in ascending order; more than there is room for: no more are counted
  matches,  // of bytes. 8: how often a text occurs in them, also where it overlaps itself; 112, or most_places_bytes():
            // where it begins, 2 bytes for each, as for values; 16: the first bytes; 16: the last ones (zeros behind
            // fewer)
  // Of numbers that belong to groups. 8 for each group, 16 for integers of 8 bytes: the sum of its numbers, in their
  // order; then 2 for each: how many they are. Both are rounded up to 8.
  group_sums,
  group_bounds,  // two numbers for each group: its least and greatest, zeros if it has none; then as group_sums
  // The result of a function of the program's choice, which the memory server has in a plugin (far/compute.h).
  computed,
  // Of several pages at once: of numbers that are in the groups of their rows, which other pages tell (keyed_rows).
  // For each group, if wanted: the sum, as in group_sums; the least and the greatest number, zeros if it has none; how
  // many rows it has, 2; how many numbers, 2. All sums come first, and so on. Then for each group how many of its
  // numbers lie below its buckets, and in each of them, 2 for each. If they are listed: for each group how many
  // different numbers its bucket has, 2; these numbers, in the order of groups and keys; how often each occurs, 2; all
  // zeros if there is no room for them. Rounded up to 8.
  of_rows,
};
inline constexpr reduction_kind last_kind_of_page = reduction_kind::computed;
inline constexpr std::size_t listed_bytes = 112;
inline constexpr std::uint64_t most_buckets = 256;
// The longest text of `matches`: it lies in `lowest` and `highest`, as in memory, and `shift` is its length.
inline constexpr std::size_t most_text_bytes = 16;
// Of the places of a text: `groups` is for how many there is room, and 0 for as many as in the longest list.
[[nodiscard]] constexpr std::size_t most_places(std::size_t groups) {
  return groups == 0 ? listed_bytes / sizeof(std::uint16_t) : groups;
}
[[nodiscard]] constexpr std::size_t most_places_bytes(std::size_t groups) {
  return (most_places(groups) * sizeof(std::uint16_t) + 7) / 8 * 8;
}

[[nodiscard]] constexpr bool has_groups(reduction_kind kind) {
  return kind == reduction_kind::group_sums || kind == reduction_kind::group_bounds;
}
// A number of another group, such as this, is in none.
inline constexpr std::uint8_t no_group = 0xff;
// So that their numbers take at most 6 bits, and answers about them have a length that is worth it.
inline constexpr std::size_t most_groups = 63;
inline constexpr std::size_t most_group_bytes = 640;
// The parts of an answer about groups: the sums or bounds, and the counts behind them.
[[nodiscard]] constexpr std::size_t group_values_bytes(reduction_kind kind, std::size_t number_bytes, bool is_integer,
                                                       std::size_t groups) {
  const std::size_t of_sum = is_integer && number_bytes == 8 ? 16 : 8;
  return (groups * (kind == reduction_kind::group_sums ? of_sum : 2 * number_bytes) + 7) / 8 * 8;
}
[[nodiscard]] constexpr std::size_t group_counts_bytes(std::size_t groups) {
  return (groups * sizeof(std::uint16_t) + 7) / 8 * 8;
}
// How many groups of numbers of a type can be asked about at a time.
template <reducible T>
[[nodiscard]] constexpr std::size_t most_groups_of(reduction_kind kind) {
  std::size_t groups = most_groups;
  while (group_values_bytes(kind, sizeof(T), std::is_integral_v<T>, groups) + group_counts_bytes(groups) >
         most_group_bytes) {
    --groups;
  }
  return groups;
}

// Rows of columns side by side, of which each fills whole pages. The group of a row is the number that its keys make,
// the first key in front; a row with a key that is not among those named here is in none. A group's numbers are added
// page by page, as if each page had been asked about alone.
inline constexpr std::size_t most_row_keys = 4;
inline constexpr std::size_t most_row_pages = 32;
inline constexpr std::size_t most_row_pages_without_buckets = 16;
inline constexpr std::uint32_t most_rows = 32'768;  // so that 2 bytes count them
struct row_key {
  std::uint64_t least = 0;  // an integer in its own representation, the bytes above are 0
  std::uint32_t count = 0;  // of integers, from the least on
  number_type type = number_type::int8;

  bool operator==(const row_key&) const = default;
};
// Bucket i has the numbers from the one with the key `lowest` + (i << shift) on.
struct group_buckets {
  std::uint64_t lowest = 0;
  std::uint8_t shift = 0;

  bool operator==(const group_buckets&) const = default;
};
inline constexpr std::size_t most_groups_with_buckets = 31;  // so that each has some
inline constexpr std::size_t most_buckets_of_rows = 255;
inline constexpr std::size_t most_bucket_bytes = 1008;  // of an answer with buckets
struct keyed_rows {
  std::uint32_t rows = 0;
  std::uint8_t keys = 0;  // at least 1; with buckets, 0: all rows are in one group
  // Of the column of numbers; without these it is not read. Rows are counted in any case.
  bool wants_sums = false;
  bool wants_least = false;
  bool wants_greatest = false;
  bool wants_counts = false;
  // How many each group has, if they are wanted, and where they are. Then sums are not wanted, and the least and the
  // greatest number of a group are those in its buckets.
  std::uint8_t buckets = 0;
  // If not 0: each group has one bucket, whose different numbers are listed. There is room for so many, of all groups.
  // The least and the greatest number are not wanted then.
  std::uint8_t listed = 0;
  std::array<row_key, most_row_keys> key{};
  std::array<group_buckets, most_groups_with_buckets> buckets_of{};

  [[nodiscard]] bool wants_numbers() const {
    return wants_sums || wants_least || wants_greatest || wants_counts || buckets > 0;
  }
  bool operator==(const keyed_rows&) const = default;
};

// Why a memory server has not called a function: what it says. Empty: it says nothing.
inline constexpr std::size_t most_refusal_bytes = 256;
struct function_refusal {
  std::atomic<bool> is_of_far_tier{false};  // which calls no functions: there is nobody to be asked
  std::atomic<bool> is_asked_for{false};    // by one of those who were refused
  std::array<char, most_refusal_bytes> text{};
};

// A function on the bytes of a page, and what it is called with. The first members travel to memory servers.
inline constexpr std::size_t most_function_arguments = 256;
inline constexpr std::size_t most_function_result = 512;
struct page_function {
  std::array<char, 32> plugin{};  // its name; behind it, and behind the version, zeros
  std::array<char, 32> version{};
  std::uint32_t number = 0;
  std::uint32_t element_bytes = 0;
  std::uint32_t result_bytes = 0;  // for each page: a multiple of 8, at most most_function_result
  std::uint32_t argument_bytes = 0;
  alignas(8) std::array<std::byte, most_function_arguments> arguments{};

  // The same function in this program. It may throw, or wait, or use far memory: called without locks, and in no
  // handler of a fault.
  using here = void (*)(const page_function& asked, const std::byte* part, std::size_t bytes, std::byte* result);
  here call_here = nullptr;
  std::atomic<bool>* refused = nullptr;  // set when the far tier has no such function, or does not call it now
  function_refusal* why = nullptr;       // then gets the reason, unless it is null

  bool operator==(const page_function&) const = default;
};

// Asks about the numbers of an interval, both ends included. NaN is in none. Bucket i of `counts` begins at the key of
// the lowest number + (i << shift).
struct reduction {
  number_type type = number_type::float64;
  std::uint64_t lowest = 0;
  std::uint64_t highest = 0;
  reduction_kind kind = reduction_kind::summary;
  std::uint8_t shift = 0;
  std::uint8_t groups = 0;  // if has_groups(), or of_rows: how many, at least 1; of matches: see most_places()
  const page_function* function = nullptr;  // if computed: nothing else counts
  const keyed_rows* rows = nullptr;         // if of_rows

  bool operator==(const reduction& other) const {
    return type == other.type && lowest == other.lowest && highest == other.highest && kind == other.kind &&
           shift == other.shift && groups == other.groups && are_same(function, other.function) &&
           are_same(rows, other.rows);
  }

 private:
  template <typename T>
  [[nodiscard]] static bool are_same(const T* one, const T* other) {
    return one == other || (one != nullptr && other != nullptr && *one == *other);
  }
};

// The answer. `least` and `greatest` mean nothing when `count` is 0.
struct reduced_numbers {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;        // the lower half of the sum of integers; of the others, the bits of a double
  std::uint64_t upper_sum = 0;  // the upper half of a sum of 128 bits in two's complement
  std::uint64_t least = 0;
  std::uint64_t greatest = 0;

  bool operator==(const reduced_numbers&) const = default;
};

}  // namespace far::detail
