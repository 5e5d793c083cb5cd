// The engine's statistics by name, and as JSON: for reports, and for queries of a running process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "control/json_object.h"
#include "engine/statistics.h"

namespace far::control {

struct statistic_field {
  const char* name;  // the member's name: the key in JSON
  std::uint64_t engine::statistics::* member;
};

// Every member of engine::statistics, in its order.
[[nodiscard]] std::span<const statistic_field> statistic_fields() noexcept;

// Adds `one` to `sum`: the statistics of several far heaps of one process are reported together.
void add_statistics(engine::statistics& sum, const engine::statistics& one) noexcept;

// For a far heap that has left: it holds nothing any more, but its counts stay.
void forget_what_is_held(engine::statistics& counted) noexcept;

void put_statistics(json_object& object, const engine::statistics& counted) noexcept;

// Writes the statistics alone as one JSON object, without a newline. Requires text.size() >= statistics_json_bytes.
inline constexpr std::size_t statistics_json_bytes = 4096;
[[nodiscard]] std::size_t format_statistics_json(const engine::statistics& counted, std::span<char> text) noexcept;

}  // namespace far::control
