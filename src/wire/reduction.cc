#include "wire/reduction.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/units.h"
#include "wire/bytes.h"

namespace far::wire {

std::size_t encode_reduction(const page_reduction& asked, std::span<const range> ranges, std::span<std::byte> to) {
  const std::size_t bytes = call_header_bytes + reduction_bytes + ranges.size() * range_bytes;
  FAR_CHECK(to.size() >= bytes && encode_call(reduction_name, to.first<call_header_bytes>()), "no room for a call");
  std::byte* const arguments = to.data() + call_header_bytes;
  store(static_cast<std::uint64_t>(asked.how.type), arguments);
  store(asked.how.lowest, arguments + 8);
  store(asked.how.highest, arguments + 16);
  std::ranges::copy(asked.hash->secret(), arguments + 24);
  static_cast<void>(encode_read(ranges, to.subspan(call_header_bytes + reduction_bytes)));
  return bytes;
}

std::optional<reduction_request> decode_reduction(std::span<const std::byte> arguments) {
  if (arguments.size() < reduction_bytes) return std::nullopt;
  const auto type = load<std::uint64_t>(arguments.data());
  if (type > static_cast<std::uint64_t>(detail::last_number_type)) return std::nullopt;
  reduction_request asked{.how = {.type = static_cast<detail::number_type>(type),
                                  .lowest = load<std::uint64_t>(arguments.data() + 8),
                                  .highest = load<std::uint64_t>(arguments.data() + 16)},
                          .hash = page_hasher(arguments.subspan<24, page_hasher::secret_bytes>()),
                          .ranges = {}};
  if (!decode_read(arguments.subspan(reduction_bytes), &asked.ranges)) return std::nullopt;
  const std::size_t number = number_bytes(asked.how.type);
  for (const range& one : asked.ranges.all()) {
    if (one.offset_bytes % number != 0 || one.length_bytes % number != 0) return std::nullopt;
    if (one.length_bytes > page_bytes - one.offset_bytes) return std::nullopt;
  }
  return asked;
}

void encode(const reduced_page& from, std::span<std::byte, reduced_bytes> to) {
  const detail::reduced_numbers& found = from.numbers;
  std::byte* at = to.data();
  for (const std::uint64_t field : {found.count, found.sum, found.upper_sum, found.least, found.greatest, from.check}) {
    store(field, at);
    at += sizeof field;
  }
}

}  // namespace far::wire
