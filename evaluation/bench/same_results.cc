#include "same_results.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>

namespace far::bench {

namespace {

using nlohmann::json;

bool are_close(double one, double other) {
  constexpr double billionth = 1e-9;
  return std::abs(one - other) <= billionth * std::max(std::abs(one), std::abs(other));
}

bool are_same(const json& one, const json& other) {
  if (one.is_number_float() && other.is_number_float()) return are_close(one, other);
  if (one.type() != other.type()) return one == other;
  if (!one.is_structured()) return one == other;
  if (one.size() != other.size()) return false;
  if (one.is_array()) return std::equal(one.begin(), one.end(), other.begin(), are_same);
  return std::ranges::all_of(one.items(), [&](const auto& item) {
    const auto found = other.find(item.key());
    return found != other.end() && are_same(item.value(), *found);
  });
}

}  // namespace

bool are_same_results(const std::string& one, const std::string& other) {
  const json parsed = json::parse(one, nullptr, false);
  const json other_parsed = json::parse(other, nullptr, false);
  if (parsed.is_discarded() || other_parsed.is_discarded()) return one == other;
  return are_same(parsed, other_parsed);
}

}  // namespace far::bench
