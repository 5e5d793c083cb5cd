// The results of the analyses, and printing them as JSON: the same trips give the same text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "calendar.h"
#include "common/json.h"
#include "trips.h"

namespace taxi {

// How often each value occurs; values that do not are absent.
using counts = std::map<unsigned, std::uint64_t>;

// Of numbers of occurrences by value.
template <std::size_t Size>
counts present(const std::array<std::uint64_t, Size>& all) {
  counts found;
  for (std::size_t value = 0; value < Size; ++value) {
    if (all[value] > 0) found[static_cast<unsigned>(value)] = all[value];
  }
  return found;
}

struct duration_summary {
  std::int64_t shortest_s;
  std::int64_t longest_s;
  double mean_s;
};

struct stored_summary {
  std::uint64_t trips;
  double share;
};

struct distance_summary {
  double longest_km;
  double mean_km;
  std::uint64_t beyond_100_km;
};

struct pickup_range {
  local_seconds first;
  local_seconds last;
};

struct pickup_counts {
  counts by_hour;   // 0 to 23
  counts by_day;    // 1 to 31
  counts by_month;  // 1 to 12
};

// In seconds, by day or month.
using medians = std::map<unsigned, double>;

[[nodiscard]] evaluation::json json(const counts& found);
[[nodiscard]] evaluation::json json(const std::map<unsigned, counts>& found);
[[nodiscard]] evaluation::json json(const medians& found);
[[nodiscard]] evaluation::json json(const duration_summary& found);
[[nodiscard]] evaluation::json json(const stored_summary& found);
[[nodiscard]] evaluation::json json(const distance_summary& found);
[[nodiscard]] evaluation::json json(const pickup_range& found);
[[nodiscard]] evaluation::json json(const pickup_counts& found);

}  // namespace taxi
