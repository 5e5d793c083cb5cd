#include "results.h"

#include <string>
#include <type_traits>

namespace taxi {
namespace {

// A JSON object whose keys are numbers, as text.
template <typename Value>
evaluation::json by_number(const std::map<unsigned, Value>& values) {
  evaluation::json object = evaluation::json::object();
  for (const auto& [number, value] : values) {
    if constexpr (std::is_same_v<Value, counts>) {
      object[std::to_string(number)] = by_number(value);
    } else {
      object[std::to_string(number)] = value;
    }
  }
  return object;
}

}  // namespace

evaluation::json json(const counts& found) {
  return by_number(found);
}

evaluation::json json(const std::map<unsigned, counts>& found) {
  return by_number(found);
}

evaluation::json json(const medians& found) {
  return by_number(found);
}

evaluation::json json(const duration_summary& found) {
  return {{"shortest_s", found.shortest_s}, {"longest_s", found.longest_s}, {"mean_s", found.mean_s}};
}

evaluation::json json(const stored_summary& found) {
  return {{"trips", found.trips}, {"share", found.share}};
}

evaluation::json json(const distance_summary& found) {
  return {{"longest_km", found.longest_km}, {"mean_km", found.mean_km}, {"beyond_100_km", found.beyond_100_km}};
}

evaluation::json json(const pickup_range& found) {
  return {{"first", text_of(found.first)}, {"last", text_of(found.last)}};
}

evaluation::json json(const pickup_counts& found) {
  return {{"by_hour", by_number(found.by_hour)},
          {"by_day", by_number(found.by_day)},
          {"by_month", by_number(found.by_month)}};
}

}  // namespace taxi
