#include "server/offload.h"

#include <array>
#include <cstring>
#include <optional>

#include "base/prefetch.h"
#include "server/extents.h"
#include "wire/bytes.h"
#include "wire/reduction.h"
#include "wire/rows.h"

namespace far::server {
namespace {

// "checksum": the XXH3-64 of ranges, so that a client can verify bytes without fetching them. Arguments: as in a read.
// Result: wire::checksum() of the bytes that the read would return, 8 bytes.
class checksum_ranges final : public offload {
 public:
  [[nodiscard]] std::string_view name() const override { return "checksum"; }
  [[nodiscard]] bool ranges_of(std::span<const std::byte> arguments, wire::batch* into) const override {
    return wire::decode_read(arguments, into);
  }

  [[nodiscard]] outcome run(const session& data, std::span<const std::byte> arguments,
                            std::span<std::byte> result) const override {
    wire::batch ranges;
    if (!wire::decode_read(arguments, &ranges)) return {wire::status::call_failed, 0, 0};
    // A range of at most a payload crosses one block's end, so it has at most two extents.
    std::array<hash_part, 2 * wire::maximum_batch> extents;
    std::size_t count = 0;
    for (const wire::range& range : ranges.all()) {
      const auto note = [&](std::span<std::byte> extent) { extents[count++] = {extent.data(), extent.size()}; };
      if (!for_each_extent(data, range, note)) return {wire::status::not_allocated, 0, 0};
    }
    wire::store(wire::checksum_of_parts({extents.data(), count}), result.data());
    return {wire::status::ok, sizeof(std::uint64_t), ranges.total_bytes};
  }
};
static_assert(wire::maximum_payload_bytes <= block_bytes);

// "reduce": questions about the numbers in parts of slots (wire/reduction.h).
class reduce_ranges final : public offload {
 public:
  [[nodiscard]] std::string_view name() const override { return wire::reduction_name; }
  [[nodiscard]] bool ranges_of(std::span<const std::byte> arguments, wire::batch* into) const override {
    const std::optional<wire::reduction_request> asked = wire::decode_reduction(arguments);
    if (asked) *into = asked->ranges;
    return asked.has_value();
  }

  [[nodiscard]] outcome run(const session& data, std::span<const std::byte> arguments,
                            std::span<std::byte> result) const override {
    const std::optional<wire::reduction_request> asked = wire::decode_reduction(arguments);
    if (!asked) return {wire::status::call_failed, 0, 0};
    page_reduction how{asked->how, &asked->hash, asked->groups};
    std::byte* to = result.data();
    const std::span<const wire::range> ranges = asked->ranges.all();
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const wire::range& range = ranges[i];
      const std::byte* const slot = data.address_of(range.slot);
      if (slot == nullptr) return {wire::status::not_allocated, 0, 0};
      if (i + 1 < ranges.size()) prefetch_page(data.address_of(ranges[i + 1].slot));
      answer(how, slot, {slot + range.offset_bytes, range.length_bytes}, to);
      to += answer_bytes(how.how);
      if (how.groups != nullptr) how.groups += packed_group_bytes(how.how, range.length_bytes);
    }
    // A page is hashed as a whole.
    return {.result_bytes = static_cast<std::size_t>(to - result.data()),
            .touched_bytes = asked->ranges.count * page_bytes,
            .is_worth_packing = how.how.kind != reduction_kind::summary};
  }
};

// "group": questions about rows, each of several slots (wire/rows.h).
class group_rows final : public offload {
 public:
  [[nodiscard]] std::string_view name() const override { return wire::rows_name; }
  [[nodiscard]] bool ranges_of(std::span<const std::byte> arguments, wire::batch* into) const override {
    const std::optional<wire::rows_request> asked = wire::decode_rows(arguments);
    if (asked) *into = asked->ranges();
    return asked.has_value();
  }

  [[nodiscard]] outcome run(const session& data, std::span<const std::byte> arguments,
                            std::span<std::byte> result) const override {
    const std::optional<wire::rows_request> asked = wire::decode_rows(arguments);
    if (!asked) return {wire::status::call_failed, 0, 0};
    const page_reduction how{.how = asked->question(), .hash = &asked->hash};
    const std::size_t pages_of_question = pages_of_rows(how.how);
    std::array<const std::byte*, detail::most_row_pages> pages{};
    std::byte* to = result.data();
    for (std::size_t i = 0; i < asked->slot_count; i += pages_of_question) {
      for (std::size_t page = 0; page < pages_of_question; ++page) {
        pages[page] = data.address_of(asked->slots[i + page]);
        if (pages[page] == nullptr) return {wire::status::not_allocated, 0, 0};
        prefetch_page(pages[page]);
      }
      answer_about_rows(how, std::span(pages).first(pages_of_question), to);
      to += answer_bytes(how.how);
    }
    return {.result_bytes = static_cast<std::size_t>(to - result.data()),
            .touched_bytes = asked->slot_count * page_bytes,
            .is_worth_packing = true};
  }
};

}  // namespace

std::span<const offload* const> built_in_offloads() {
  static const checksum_ranges checksum;
  static const reduce_ranges reduce;
  static const group_rows group;
  static const std::array<const offload*, 3> all{&checksum, &reduce, &group};
  return all;
}

const offload* find_offload(std::string_view name) {
  for (const offload* candidate : built_in_offloads()) {
    if (candidate->name() == name) return candidate;
  }
  return nullptr;
}

}  // namespace far::server
