#include "samples.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace far::bench {

double percentile_of_sorted(std::span<const double> sorted, double fraction) {
  FAR_CHECK(!sorted.empty(), "a percentile of nothing");
  FAR_CHECK(fraction >= 0 && fraction <= 1, "a percentile outside 0 to 1");
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = position - static_cast<double>(below);
  return sorted[below] * (1 - weight) + sorted[above] * weight;
}

summary summarise(std::span<const double> samples) {
  if (samples.empty()) return {};
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return {percentile_of_sorted(sorted, 0.5), sorted.front(), sorted.back(), sorted.size()};
}

latency_summary summarise_latencies(std::vector<std::uint32_t>& ticks, double nanoseconds_per_tick,
                                    double overhead_ticks) {
  if (ticks.empty()) return {};
  const auto nanoseconds = [&](double raw) { return std::max(0.0, raw - overhead_ticks) * nanoseconds_per_tick; };
  // The nearest rank is fine for many thousand samples, and selecting it is linear.
  const auto rank = [&](double fraction) {
    const auto index = static_cast<std::size_t>(std::lround(fraction * static_cast<double>(ticks.size() - 1)));
    const auto place = ticks.begin() + static_cast<std::ptrdiff_t>(index);
    std::nth_element(ticks.begin(), place, ticks.end());
    return nanoseconds(*place);
  };
  double sum = 0;
  for (const std::uint32_t raw : ticks) sum += nanoseconds(raw);
  return {sum / static_cast<double>(ticks.size()), rank(0.5), rank(0.99), rank(1.0)};
}

}  // namespace far::bench
