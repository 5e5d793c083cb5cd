#include "base/units.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <span>

namespace far {
namespace {

struct unit {
  std::string_view name;
  double factor;
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Parses a non-negative decimal number followed by one of `units`. Returns false for any other text.
bool parse_with_units(std::string_view text, std::span<const unit> units, double* value) {
  const std::string lowered = lower(text);
  double number = 0;
  const char* end = lowered.data() + lowered.size();
  const auto [rest, failure] = std::from_chars(lowered.data(), end, number, std::chars_format::fixed);
  if (failure != std::errc{} || number < 0) return false;
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  for (const unit& candidate : units) {
    if (suffix != candidate.name) continue;
    *value = number * candidate.factor;
    return *value < 9.2e18;
  }
  return false;
}

}  // namespace

result<std::uint64_t> parse_size(std::string_view text) {
  static constexpr std::array<unit, 17> units{{{"", 1},
                                               {"b", 1},
                                               {"k", double(kib)},
                                               {"kb", double(kib)},
                                               {"kib", double(kib)},
                                               {"m", double(mib)},
                                               {"mb", double(mib)},
                                               {"mib", double(mib)},
                                               {"g", double(gib)},
                                               {"gb", double(gib)},
                                               {"gib", double(gib)},
                                               {"t", double(tib)},
                                               {"tb", double(tib)},
                                               {"tib", double(tib)},
                                               {" kib", double(kib)},
                                               {" mib", double(mib)},
                                               {" gib", double(gib)}}};
  double value = 0;
  if (!parse_with_units(text, units, &value)) {
    return error{"'" + std::string(text) + "' is not a size; write for example 512M, 2G or 1.5G"};
  }
  return static_cast<std::uint64_t>(std::llround(value));
}

result<double> parse_share(std::string_view text, double largest) {
  static constexpr std::array<unit, 1> units{{{"%", 0.01}}};
  double share = 0;
  if (!parse_with_units(text, units, &share) || share <= 0 || share > largest) {
    return error{"'" + std::string(text) + "' is not a percentage above 0% and up to " +
                 std::to_string(std::lround(largest * 100)) + "%; write for example " + (largest < 1 ? "5%" : "25%")};
  }
  return share;
}

result<std::uint64_t> parse_duration_ns(std::string_view text) {
  static constexpr std::array<unit, 4> units{{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  double value = 0;
  if (!parse_with_units(text, units, &value)) {
    return error{"'" + std::string(text) + "' is not a duration; write for example 250ns, 5us, 1.5ms or 2s"};
  }
  return static_cast<std::uint64_t>(std::llround(value));
}

std::string format_size(std::uint64_t bytes) {
  static constexpr std::array<const char*, 5> names{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t scale = 0;
  while (value >= 1024 && scale + 1 < names.size()) {
    value /= 1024;
    ++scale;
  }
  char text[32];
  const int decimals = scale == 0 || value >= 100 ? 0 : (value >= 10 ? 1 : 2);
  std::snprintf(text, sizeof text, "%.*f %s", decimals, value, names[scale]);
  return text;
}

std::string format_duration(std::uint64_t nanoseconds) {
  static constexpr std::array<const char*, 4> names{"ns", "us", "ms", "s"};
  double value = static_cast<double>(nanoseconds);
  std::size_t scale = 0;
  while (value >= 1000 && scale + 1 < names.size()) {
    value /= 1000;
    ++scale;
  }
  char text[32];
  const int decimals = scale == 0 || value >= 100 ? 0 : (value >= 10 ? 1 : 2);
  std::snprintf(text, sizeof text, "%.*f %s", decimals, value, names[scale]);
  return text;
}

}  // namespace far
