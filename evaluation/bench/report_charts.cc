#include "report_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace far::bench {

namespace {

// The position of `name`, which is added when it is not there.
std::size_t index_of(std::vector<std::string>& names, const std::string& name) {
  const auto place = std::find(names.begin(), names.end(), name);
  if (place != names.end()) return static_cast<std::size_t>(place - names.begin());
  names.push_back(name);
  return names.size() - 1;
}

}  // namespace

chart bars_of(const report& figures, const column& shown, const std::string& beginning) {
  chart drawn;
  drawn.file = fmt::format("{}-{}", figures.benchmark(), shown.metric);
  drawn.title = fmt::format("farheap-bench {}: {}", figures.benchmark(), shown.heading);
  drawn.y = {.title = shown.heading, .along = spacing::logarithmic};
  std::vector<std::string> configurations;
  for (const row_key& key : figures.keys()) {
    const double value = figures.median(key, shown.metric);
    if (value <= 0 || !key.workload.starts_with(beginning)) continue;
    const std::string group = key.threads > 1 ? fmt::format("{}, {} threads", key.workload, key.threads) : key.workload;
    const std::size_t column_index = index_of(drawn.groups, group);
    const std::size_t bar = index_of(configurations, key.configuration);
    if (bar == drawn.series.size()) drawn.series.push_back({key.configuration, {}});
    std::vector<double>& values = drawn.series[bar].values;
    if (values.size() <= column_index) values.resize(column_index + 1, std::numeric_limits<double>::quiet_NaN());
    values[column_index] = value / shown.scale;
  }
  return drawn;
}

std::vector<line> curves_of(const report& figures, const column& shown, const std::vector<curve_point>& points) {
  std::vector<line> drawn;
  std::vector<std::string> configurations;
  for (const curve_point& point : points) {
    for (const row_key& key : figures.keys()) {
      if (key.workload != point.workload) continue;
      const std::size_t curve = index_of(configurations, key.configuration);
      if (curve == drawn.size()) drawn.push_back({key.configuration, {}});
      drawn[curve].points.emplace_back(point.x, figures.median(key, shown.metric) / shown.scale);
    }
  }
  return drawn;
}

std::vector<chart> charts_of(const report& figures, const table_layout& layout) {
  std::vector<chart> drawn;
  for (const column& shown : layout.columns) drawn.push_back(bars_of(figures, shown));
  return drawn;
}

}  // namespace far::bench
