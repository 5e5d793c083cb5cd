#include "wire/rows.h"

#include <algorithm>

#include "base/check.h"
#include "wire/bytes.h"

namespace far::wire {
namespace {

constexpr std::size_t keys_at = 24;
constexpr std::size_t key_bytes = 16;
constexpr std::size_t secret_at = keys_at + detail::most_row_keys * key_bytes;
static_assert(secret_at + page_hasher::secret_bytes == rows_bytes);

constexpr unsigned sums = 1;
constexpr unsigned least = 2;
constexpr unsigned greatest = 4;
constexpr unsigned counts = 8;
constexpr unsigned buckets = 16;

unsigned wanted_of(const detail::keyed_rows& rows) {
  return (rows.wants_sums ? sums : 0) | (rows.wants_least ? least : 0) | (rows.wants_greatest ? greatest : 0) |
         (rows.wants_counts ? counts : 0) | (rows.buckets > 0 ? buckets : 0);
}

// Nothing: bytes that have no meaning are not zeros.
std::optional<detail::row_key> decode_key(const std::byte* from) {
  const auto count_and_type = load<std::uint64_t>(from + 8);
  if (count_and_type >> 40 != 0) return std::nullopt;
  return detail::row_key{.least = load<std::uint64_t>(from),
                         .count = static_cast<std::uint32_t>(count_and_type),
                         .type = static_cast<detail::number_type>(count_and_type >> 32)};
}

std::byte* encode_buckets(const detail::keyed_rows& rows, std::size_t groups, std::byte* to) {
  store(std::uint64_t{rows.listed} << 8 | rows.buckets, to);
  to += sizeof(std::uint64_t);
  for (std::size_t group = 0; group < groups; ++group, to += 2 * sizeof(std::uint64_t)) {
    store(rows.buckets_of[group].lowest, to);
    store(std::uint64_t{rows.buckets_of[group].shift}, to + sizeof(std::uint64_t));
  }
  return to;
}

// Returns whether they make sense.
bool decode_buckets(std::span<const std::byte> from, std::size_t groups, detail::keyed_rows& into) {
  const auto head = load<std::uint64_t>(from.data());
  if ((head & 0xff) == 0 || head >> 16 != 0) return false;
  into.buckets = static_cast<std::uint8_t>(head);
  into.listed = static_cast<std::uint8_t>(head >> 8);
  for (std::size_t group = 0; group < groups; ++group) {
    const std::byte* const at = from.data() + buckets_bytes(group);
    const auto shift = load<std::uint64_t>(at + sizeof(std::uint64_t));
    if (shift >= 64) return false;
    into.buckets_of[group] = {load<std::uint64_t>(at), static_cast<std::uint8_t>(shift)};
  }
  return true;
}

}  // namespace

std::size_t encode_rows(const page_reduction& asked, std::span<const std::uint64_t> slots, std::span<std::byte> to) {
  const detail::keyed_rows& rows = *asked.how.rows;
  const std::size_t of_buckets = rows.buckets > 0 ? buckets_bytes(asked.how.groups) : 0;
  const std::size_t bytes = call_header_bytes + rows_bytes + of_buckets + slots.size_bytes();
  FAR_CHECK(to.size() >= bytes && encode_call(rows_name, to.first<call_header_bytes>()), "no room for a call");
  std::byte* const at = to.data() + call_header_bytes;
  store(std::uint64_t{rows.rows} << 32 | std::uint64_t{rows.keys} << 24 | std::uint64_t{asked.how.groups} << 16 |
            std::uint64_t{wanted_of(rows)} << 8 | static_cast<std::uint64_t>(asked.how.type),
        at);
  store(asked.how.lowest, at + 8);
  store(asked.how.highest, at + 16);
  for (std::size_t i = 0; i < rows.key.size(); ++i) {
    const detail::row_key key = i < rows.keys ? rows.key[i] : detail::row_key{};
    store(key.least, at + keys_at + i * key_bytes);
    store(std::uint64_t{key.count} | static_cast<std::uint64_t>(key.type) << 32, at + keys_at + i * key_bytes + 8);
  }
  std::ranges::copy(asked.hash->secret(), at + secret_at);
  std::byte* const behind = at + rows_bytes;
  std::ranges::copy(std::as_bytes(slots), rows.buckets > 0 ? encode_buckets(rows, asked.how.groups, behind) : behind);
  return bytes;
}

std::optional<rows_request> decode_rows(std::span<const std::byte> arguments) {
  if (arguments.size() < rows_bytes) return std::nullopt;
  const std::byte* const at = arguments.data();
  const auto question = load<std::uint64_t>(at);
  const auto wanted = static_cast<unsigned>(question >> 8 & 0xff);
  rows_request asked{.how = {.type = static_cast<detail::number_type>(question & 0xff),
                             .lowest = load<std::uint64_t>(at + 8),
                             .highest = load<std::uint64_t>(at + 16),
                             .kind = reduction_kind::of_rows,
                             .groups = static_cast<std::uint8_t>(question >> 16)},
                     .rows = {.rows = static_cast<std::uint32_t>(question >> 32),
                              .keys = static_cast<std::uint8_t>(question >> 24),
                              .wants_sums = (wanted & sums) != 0,
                              .wants_least = (wanted & least) != 0,
                              .wants_greatest = (wanted & greatest) != 0,
                              .wants_counts = (wanted & counts) != 0},
                     .hash = page_hasher(arguments.subspan<secret_at, page_hasher::secret_bytes>())};
  if (wanted > (sums | least | greatest | counts | buckets)) return std::nullopt;
  for (std::size_t i = 0; i < detail::most_row_keys; ++i) {
    const std::optional<detail::row_key> key = decode_key(at + keys_at + i * key_bytes);
    if (!key || (i >= asked.rows.keys && *key != detail::row_key{})) return std::nullopt;
    asked.rows.key[i] = *key;
  }
  std::span<const std::byte> slots = arguments.subspan(rows_bytes);
  if ((wanted & buckets) != 0) {
    if (asked.how.groups > detail::most_groups_with_buckets || slots.size() < buckets_bytes(asked.how.groups) ||
        !decode_buckets(slots, asked.how.groups, asked.rows)) {
      return std::nullopt;
    }
    slots = slots.subspan(buckets_bytes(asked.how.groups));
  }
  const reduction how = asked.question();
  if (!is_valid(how)) return std::nullopt;
  asked.slot_count = slots.size() / sizeof(std::uint64_t);
  if (slots.empty() || slots.size() % sizeof(std::uint64_t) != 0 || asked.slot_count > maximum_batch ||
      asked.slot_count % pages_of_rows(how) != 0) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < asked.slot_count; ++i) {
    asked.slots[i] = load<std::uint64_t>(slots.data() + i * sizeof(std::uint64_t));
  }
  return asked;
}

batch rows_request::ranges() const {
  batch all;
  for (std::size_t i = 0; i < slot_count; ++i) all.ranges[i] = {slots[i], 0, page_bytes};
  all.count = slot_count;
  all.total_bytes = slot_count * page_bytes;
  return all;
}

}  // namespace far::wire
