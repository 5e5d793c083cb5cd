#include "fuzz/questions_about_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <type_traits>

#include "base/number_types.h"
#include "base/page_reduction.h"
#include "wire/rows.h"

namespace far::fuzz {
namespace {

using detail::bits_of;
using detail::number_of;

// The key of a row in a column of integers of the type, as its distance from the least one.
std::uint64_t key_above(const detail::row_key& key, std::span<const std::byte* const> pages, std::size_t row) {
  return with_number_type(key.type, [&](auto number) -> std::uint64_t {
    using T = decltype(number);
    std::memcpy(&number, pages[row * sizeof(T) / page_bytes] + row * sizeof(T) % page_bytes, sizeof number);
    constexpr std::uint64_t all_bits = ~std::uint64_t{0} >> (64 - 8 * sizeof(T));
    return (bits_of(number) - key.least) & all_bits;
  });
}

template <typename T>
struct plain_group {
  using sum_type = std::conditional_t<std::is_floating_point_v<T>, double,
                                      std::conditional_t<sizeof(T) == 8, unsigned __int128, std::uint64_t>>;

  // `buckets`: null, or where they begin.
  void add(T number, const detail::group_buckets* buckets) {
    if constexpr (std::is_floating_point_v<T>) {
      of_page += static_cast<double>(number);
    } else {
      of_page += static_cast<sum_type>(static_cast<__int128>(number));
    }
    ++count;
    if (buckets != nullptr) {
      const std::uint64_t key = detail::key_of(number);
      const std::uint64_t bucket = (key - buckets->lowest) >> buckets->shift;
      if (key < buckets->lowest) ++places[0];
      if (key < buckets->lowest || bucket >= places.size() - 1) return;
      ++places[bucket + 1];
      ++listed[key];
    }
    least = bounded == 0 ? number : std::min(least, number);
    greatest = bounded == 0 ? number : std::max(greatest, number);
    ++bounded;
  }

  sum_type sum = 0;
  sum_type of_page = 0;
  T least{};
  T greatest{};
  std::uint16_t rows = 0;
  std::uint16_t count = 0;
  std::uint64_t bounded = 0;
  std::vector<std::uint16_t> places;
  std::map<std::uint64_t, std::uint16_t> listed;  // how often each key of the buckets occurs
};

// From `at` on.
template <typename T>
void expect_lists(const detail::keyed_rows& rows, const std::vector<plain_group<T>>& groups, const byte_string& answer,
                  std::size_t at) {
  std::size_t all = 0;
  for (const auto& one : groups) all += one.listed.size();
  const auto expect = [&](auto value) {
    auto found = value;
    std::memcpy(&found, answer.data() + at, sizeof found);
    at += sizeof found;
    FUZZ_EXPECT(found == value);
  };
  const bool has_room = all <= rows.listed;
  for (const auto& one : groups) expect(static_cast<std::uint16_t>(has_room ? one.listed.size() : 0));
  const std::size_t unused = has_room ? rows.listed - all : rows.listed;
  for (const auto& one : groups) {
    for (const auto& [key, times] : one.listed) {
      if (has_room) expect(detail::number_with_key<T>(key));
    }
  }
  for (std::size_t i = 0; i < unused; ++i) expect(T{});
  for (const auto& one : groups) {
    for (const auto& [key, times] : one.listed) {
      if (has_room) expect(times);
    }
  }
  for (std::size_t i = 0; i < unused; ++i) expect(std::uint16_t{0});
}

template <typename T>
void expect_rows(const reduction& how, std::span<const std::byte* const> pages, const byte_string& answer) {
  const detail::keyed_rows& rows = *how.rows;
  using group = plain_group<T>;
  std::vector<group> groups(how.groups);
  for (group& one : groups) one.places.resize(rows.buckets > 0 ? rows.buckets + 1u : 0u);
  for (std::size_t row = 0; row < rows.rows; ++row) {
    std::size_t number_of_group = 0;
    std::span<const std::byte* const> rest = pages;
    for (std::size_t i = 0; i < rows.keys && number_of_group < groups.size(); ++i) {
      const std::uint64_t above = key_above(rows.key[i], rest, row);
      number_of_group = above < rows.key[i].count ? number_of_group * rows.key[i].count + above : groups.size();
      rest = rest.subspan(rows.rows * number_bytes(rows.key[i].type) / page_bytes);
    }
    const bool ends_page = (row + 1) * sizeof(T) % page_bytes == 0;
    if (number_of_group < groups.size()) {
      group& mine = groups[number_of_group];
      ++mine.rows;
      T number{};
      if (rows.wants_numbers()) {
        std::memcpy(&number, rest[row * sizeof(T) / page_bytes] + row * sizeof(T) % page_bytes, sizeof number);
      }
      const bool counts = number >= number_of<T>(how.lowest) && number <= number_of<T>(how.highest);
      if (rows.wants_numbers() && counts) {
        mine.add(number, rows.buckets > 0 ? &rows.buckets_of[number_of_group] : nullptr);
      }
    }
    for (std::size_t i = 0; ends_page && i < groups.size(); ++i) {
      groups[i].sum += groups[i].of_page;
      groups[i].of_page = 0;
    }
  }
  std::size_t at = 0;
  const auto expect = [&](bool is_wanted, auto group::* of) {
    for (std::size_t i = 0; is_wanted && i < groups.size(); ++i) {
      auto found = groups[i].*of;
      std::memcpy(&found, answer.data() + at, sizeof found);
      at += sizeof found;
      if constexpr (std::is_same_v<decltype(found), double>) {
        FUZZ_EXPECT(found == groups[i].*of || (std::isnan(found) && std::isnan(groups[i].*of)));
      } else {
        FUZZ_EXPECT(found == groups[i].*of);
      }
    }
  };
  expect(rows.wants_sums, &group::sum);
  expect(rows.wants_least, &group::least);
  expect(rows.wants_greatest, &group::greatest);
  expect(true, &group::rows);
  expect(rows.wants_counts, &group::count);
  for (const group& one : groups) {
    for (const std::uint16_t place : one.places) {
      std::uint16_t found = 0;
      std::memcpy(&found, answer.data() + at, sizeof found);
      at += sizeof found;
      FUZZ_EXPECT(found == place);
    }
  }
  if (rows.listed > 0) expect_lists<T>(rows, groups, answer, at);
}

}  // namespace

void expect_answers_about_rows(const server::session& data, std::span<const std::byte> arguments,
                               std::span<const std::byte> result) {
  const std::optional<wire::rows_request> asked = wire::decode_rows(arguments);
  FUZZ_EXPECT(asked.has_value());
  const reduction how = asked->question();
  const std::size_t pages_of_question = pages_of_rows(how);
  FUZZ_EXPECT(asked->slot_count % pages_of_question == 0 &&
              result.size() == asked->slot_count / pages_of_question * answer_bytes(how));
  for (std::size_t i = 0; i < asked->slot_count; i += pages_of_question) {
    std::vector<const std::byte*> pages;
    std::vector<std::uint64_t> hashes;
    for (std::size_t page = 0; page < pages_of_question; ++page) {
      pages.push_back(data.address_of(asked->slots[i + page]));
      hashes.push_back(hash_of_pieces(asked->hash, pages.back()));
    }
    const byte_string answer(result.begin(), result.begin() + static_cast<std::ptrdiff_t>(answer_bytes(how)));
    with_number_type(how.type, [&](auto number) { expect_rows<decltype(number)>(how, pages, answer); });
    FUZZ_EXPECT(is_possible_of_rows(how, answer.data()));
    std::uint64_t check = 0;
    std::memcpy(&check, answer.data() + found_bytes(how), sizeof check);
    FUZZ_EXPECT(check == hash_of_pages(hashes));
    result = result.subspan(answer.size());
  }
}

byte_string question_about_rows(choices& input) {
  detail::keyed_rows rows;
  const std::uint8_t wanted = input.number<std::uint8_t>();
  rows.wants_sums = (wanted & 1) != 0;
  rows.wants_least = (wanted & 2) != 0;
  rows.wants_greatest = (wanted & 4) != 0;
  rows.wants_counts = (wanted & 8) != 0;
  rows.rows = 512u << input.number<std::uint8_t>() % 7;
  rows.buckets = (wanted & 16) != 0 ? input.number<std::uint8_t>() : 0;
  if (rows.buckets == 1) rows.listed = input.number<std::uint8_t>();
  rows.keys = static_cast<std::uint8_t>((rows.buckets > 0 ? 0 : 1) + input.number<std::uint8_t>() % 4);
  std::uint8_t groups = 1;
  for (std::size_t i = 0; i < rows.keys; ++i) {
    rows.key[i].type = static_cast<detail::number_type>(input.number<std::uint8_t>() % 8);
    rows.key[i].count = 1u + input.number<std::uint8_t>() % 63;
    rows.key[i].least = input.number<std::uint64_t>() & ~std::uint64_t{0} >> (64 - 8 * number_bytes(rows.key[i].type));
    groups = static_cast<std::uint8_t>(groups * rows.key[i].count);
  }
  const std::size_t with_buckets =
      rows.buckets > 0 ? std::min<std::size_t>(groups, detail::most_groups_with_buckets) : 0;
  if (rows.buckets > 0) groups = static_cast<std::uint8_t>(with_buckets);
  for (std::size_t i = 0; i < with_buckets; ++i) {
    rows.buckets_of[i] = {input.number<std::uint64_t>(), input.number<std::uint8_t>()};
  }
  const reduction how{.type = static_cast<detail::number_type>(input.number<std::uint8_t>() % 10),
                      .lowest = input.number<std::uint64_t>(),
                      .highest = input.number<std::uint64_t>(),
                      .kind = reduction_kind::of_rows,
                      .groups = groups,
                      .rows = &rows};
  const page_hasher hash{input.number<std::uint8_t>()};
  std::vector<std::uint64_t> slots(std::min<std::size_t>(
      std::max<std::size_t>(pages_of_rows(how), 1) * (1 + input.number<std::uint8_t>() % 4), wire::maximum_batch));
  for (std::uint64_t& slot : slots) slot = input.number<std::uint16_t>() % (2 * wire::block_slots);
  if (input.number<std::uint8_t>() > 250) slots[0] = input.number<std::uint64_t>();
  byte_string payload(wire::call_header_bytes + wire::most_rows_bytes + slots.size() * sizeof slots[0]);
  payload.resize(wire::encode_rows({.how = how, .hash = &hash}, slots, payload));
  payload.erase(payload.begin(), payload.begin() + wire::call_header_bytes);
  if (input.number<std::uint8_t>() >= 192) {
    payload[input.number<std::uint16_t>() % payload.size()] = static_cast<std::byte>(input.number<std::uint8_t>());
  }
  return payload;
}

void add_seeds_about_rows(std::vector<byte_string>& all) {
  for (std::uint8_t type = 0; type < 10; ++type) {
    for (const std::uint8_t wanted : std::to_array<std::uint8_t>({0, 9, 6})) {
      recipe made;
      made.number(std::uint8_t{128}).number(wanted).number(std::uint8_t{3}).number(static_cast<std::uint8_t>(type % 2));
      made.number(std::uint8_t{0}).number(static_cast<std::uint8_t>(type + 3)).number(std::uint64_t{0});
      if (type % 2 == 1) made.number(std::uint8_t{4}).number(std::uint8_t{1}).number(std::uint64_t{0});
      made.number(type).number(std::uint64_t{0}).number(std::uint64_t{0x7fff'ffff'ffff'ffff}).number(std::uint8_t{7});
      made.number(std::uint8_t{1});
      for (std::uint16_t slot = 0; slot < 30; ++slot) made.number(static_cast<std::uint16_t>(slot * 7));
      all.push_back(made.bytes());
    }
  }
  // With buckets, or lists: of the groups of a key, and of all rows.
  for (std::uint8_t kind = 0; kind < 20; ++kind) {
    const auto type = static_cast<std::uint8_t>(kind % 10);
    for (const std::uint8_t keys : std::to_array<std::uint8_t>({0, 1})) {
      recipe made;
      made.number(std::uint8_t{128});
      if (kind < 10) {
        made.number(std::uint8_t{16 + 8 + 6}).number(std::uint8_t{3}).number(std::uint8_t{9});
      } else {
        made.number(std::uint8_t{16 + 8}).number(std::uint8_t{3}).number(std::uint8_t{1}).number(std::uint8_t{30});
      }
      made.number(keys);
      if (keys > 0) made.number(std::uint8_t{0}).number(std::uint8_t{4}).number(std::uint64_t{0});
      for (int group = 0; group < (keys > 0 ? 5 : 1); ++group) {
        made.number(std::uint64_t{1} << 63).number(static_cast<std::uint8_t>(2 + 5 * type));
      }
      made.number(type).number(std::uint64_t{0}).number(std::uint64_t{0x7fff'ffff'ffff'ffff}).number(std::uint8_t{7});
      made.number(std::uint8_t{1});
      for (std::uint16_t slot = 0; slot < 30; ++slot) made.number(static_cast<std::uint16_t>(slot * 7));
      all.push_back(made.bytes());
    }
  }
}

}  // namespace far::fuzz
