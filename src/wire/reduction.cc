#include "wire/reduction.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/units.h"
#include "wire/bytes.h"

namespace far::wire {
namespace {

bool is_of_whole_slots(const range& one) {
  return one.offset_bytes == 0 && one.length_bytes % page_bytes == 0;
}

// Returns how many there are then.
std::size_t join_neighbours(std::span<const range> ranges, std::span<range, maximum_batch> into) {
  std::size_t count = 0;
  for (const range& one : ranges) {
    range* const before = count > 0 ? &into[count - 1] : nullptr;
    if (before != nullptr && is_of_whole_slots(*before) && is_of_whole_slots(one) &&
        one.slot == before->slot + before->length_bytes / page_bytes) {
      before->length_bytes += one.length_bytes;
    } else {
      into[count++] = one;
    }
  }
  return count;
}

// Takes ranges apart that are several slots. False: one lies in several slots, and not as a whole; or they are too
// many.
bool split_by_slot(const batch& joined, batch& into) {
  for (const range& one : joined.all()) {
    const bool is_whole = is_of_whole_slots(one);
    if (!is_whole && one.length_bytes > page_bytes - one.offset_bytes) return false;
    const std::size_t slots = is_whole ? one.length_bytes / page_bytes : 1;
    if (slots > maximum_batch - into.count) return false;
    for (std::size_t i = 0; i < slots; ++i) {
      into.ranges[into.count++] = {one.slot + i, one.offset_bytes,
                                   one.length_bytes / static_cast<std::uint32_t>(slots)};
    }
  }
  into.total_bytes = joined.total_bytes;
  return true;
}

}  // namespace

std::size_t encode_reduction(const page_reduction& asked, std::span<const range> ranges, bool joins,
                             std::span<std::byte> to) {
  std::array<range, maximum_batch> joined;
  if (joins) ranges = std::span(joined).first(join_neighbours(ranges, joined));
  const std::size_t bytes = call_header_bytes + reduction_bytes + ranges.size() * range_bytes;
  FAR_CHECK(to.size() >= bytes && encode_call(reduction_name, to.first<call_header_bytes>()), "no room for a call");
  std::byte* const arguments = to.data() + call_header_bytes;
  const bool has_groups = detail::has_groups(asked.how.kind);
  const std::uint64_t question = static_cast<std::uint64_t>(asked.how.type) |
                                 static_cast<std::uint64_t>(asked.how.kind) << 8 |
                                 std::uint64_t{asked.how.shift} << 16 | std::uint64_t{asked.how.groups} << 24 |
                                 (has_groups ? std::uint64_t{ranges.size()} << 32 : 0);
  store(question, arguments);
  store(asked.how.lowest, arguments + 8);
  store(asked.how.highest, arguments + 16);
  std::ranges::copy(asked.hash->secret(), arguments + 24);
  static_cast<void>(encode_read(ranges, to.subspan(call_header_bytes + reduction_bytes)));
  return bytes;
}

std::optional<reduction_request> decode_reduction(std::span<const std::byte> arguments) {
  if (arguments.size() < reduction_bytes) return std::nullopt;
  const auto question = load<std::uint64_t>(arguments.data());
  reduction_request asked{.how = {.type = static_cast<detail::number_type>(question & 0xff),
                                  .lowest = load<std::uint64_t>(arguments.data() + 8),
                                  .highest = load<std::uint64_t>(arguments.data() + 16),
                                  .kind = static_cast<reduction_kind>(question >> 8 & 0xff),
                                  .shift = static_cast<std::uint8_t>(question >> 16),
                                  .groups = static_cast<std::uint8_t>(question >> 24)},
                          .hash = page_hasher(arguments.subspan<24, page_hasher::secret_bytes>()),
                          .ranges = {}};
  if (!is_valid(asked.how)) return std::nullopt;
  const bool has_groups = detail::has_groups(asked.how.kind);
  if (question >> (has_groups ? 48 : 32) != 0) return std::nullopt;
  std::span<const std::byte> ranges = arguments.subspan(reduction_bytes);
  std::span<const std::byte> groups;
  if (has_groups) {
    const std::size_t bytes = (question >> 32) * range_bytes;
    if (bytes > ranges.size()) return std::nullopt;
    groups = ranges.subspan(bytes);
    ranges = ranges.first(bytes);
    asked.groups = groups.data();
  }
  batch joined;
  if (!decode_read(ranges, &joined) || !split_by_slot(joined, asked.ranges)) return std::nullopt;
  std::size_t group_bytes = 0;
  const std::size_t number = number_bytes(asked.how.type);
  for (const range& one : asked.ranges.all()) {
    if (one.offset_bytes % number != 0 || one.length_bytes % number != 0) return std::nullopt;
    if (has_groups) group_bytes += packed_group_bytes(asked.how, one.length_bytes);
  }
  if (group_bytes != groups.size()) return std::nullopt;
  return asked;
}

}  // namespace far::wire
