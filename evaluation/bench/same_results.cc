#include "same_results.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/json.h"

namespace far::bench {

namespace {

using evaluation::json;

bool are_close(double one, double other) {
  constexpr double billionth = 1e-9;
  return std::abs(one - other) <= billionth * std::max(std::abs(one), std::abs(other));
}

bool are_same(const json& one, const json& other) {
  if (one.is_real() && other.is_real()) return are_close(one, other);
  if (one.is_array() && other.is_array()) return std::ranges::equal(one, other, are_same);
  if (!one.is_object() || !other.is_object()) return one == other;
  return one.size() == other.size() && std::ranges::all_of(one.items(), [&](const evaluation::json_member& member) {
           const json* const found = other.find(member.name);
           return found != nullptr && are_same(member.value, *found);
         });
}

}  // namespace

bool are_same_results(const std::string& one, const std::string& other) {
  const json parsed = json::parse(one);
  const json other_parsed = json::parse(other);
  if (parsed.is_null() || other_parsed.is_null()) return one == other;
  return are_same(parsed, other_parsed);
}

}  // namespace far::bench
