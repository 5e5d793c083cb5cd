#include "report.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/json.h"

namespace far::bench {

namespace {

evaluation::json to_json(const std::vector<double>& samples) {
  const summary figures = summarise(samples);
  return {{"median", figures.median}, {"min", figures.min}, {"max", figures.max}, {"samples", samples}};
}

}  // namespace

const report::row* report::find(const row_key& key) const {
  const auto place = std::find_if(rows_.begin(), rows_.end(), [&](const row& known) { return known.key == key; });
  return place == rows_.end() ? nullptr : &*place;
}

void report::add(const row_key& key, const std::string& metric, double sample) {
  auto place = std::find_if(rows_.begin(), rows_.end(), [&](const row& known) { return known.key == key; });
  if (place == rows_.end()) place = rows_.insert(rows_.end(), row{key, {}});
  place->metrics[metric].push_back(sample);
}

void report::skip(const std::string& configuration, const std::string& reason) {
  const auto skipped = std::make_pair(configuration, reason);
  if (std::find(skipped_.begin(), skipped_.end(), skipped) == skipped_.end()) skipped_.push_back(skipped);
}

void report::note(const std::string& text) {
  if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) notes_.push_back(text);
}

void report::aim(const std::string& subject, double value, const std::string& unit, double limit, bool at_least) {
  aims_.push_back({subject, value, unit, limit, at_least});
}

double report::median(const row_key& key, const std::string& metric) const {
  const row* known = find(key);
  if (known == nullptr) return 0;
  const auto samples = known->metrics.find(metric);
  return samples == known->metrics.end() ? 0 : summarise(samples->second).median;
}

std::vector<row_key> report::keys() const {
  std::vector<row_key> found;
  for (const row& one : rows_) found.push_back(one.key);
  return found;
}

void report::print_row(const row& shown, const table_layout& layout, std::size_t name_width) const {
  fmt::print("  {:<{}}", shown.key.configuration, name_width);
  for (const column& column : layout.columns) {
    const auto samples = shown.metrics.find(column.metric);
    if (samples == shown.metrics.end()) {
      fmt::print(" {:>9}      ", "-");
      continue;
    }
    const summary value = summarise(samples->second);
    const double spread = value.median > 0 ? (value.max - value.min) / 2 / value.median * 100 : 0;
    fmt::print(" {:>9.{}f} {:<5}", value.median / column.scale, column.decimals,
               value.count > 1 ? fmt::format("~{:.0f}%", spread) : "");
  }
  if (!layout.ratio_metric.empty()) {
    const double base = median({shown.key.workload, layout.baseline, shown.key.threads}, layout.ratio_metric);
    const double own = median(shown.key, layout.ratio_metric);
    fmt::print(" {:>8}", base > 0 && own > 0 ? fmt::format("{:.3g}x", own / base) : "-");
  }
  fmt::print("\n");
}

void report::print(const table_layout& layout) const {
  std::size_t name_width = 0;
  for (const row& any : rows_) name_width = std::max(name_width, any.key.configuration.size());
  std::vector<std::pair<std::string, int>> printed;
  for (const row& first : rows_) {
    const auto table = std::make_pair(first.key.workload, first.key.threads);
    if (std::find(printed.begin(), printed.end(), table) != printed.end()) continue;
    printed.push_back(table);
    const std::string threads = first.key.threads > 1 ? fmt::format(", {} threads", first.key.threads) : "";
    fmt::print("\n{}{}\n  {:<{}}", first.key.workload, threads, "", name_width);
    for (const column& column : layout.columns) fmt::print(" {:>9}      ", column.heading);
    if (!layout.ratio_metric.empty()) fmt::print(" {:>8}", "ratio");
    fmt::print("\n");
    for (const row& shown : rows_) {
      if (shown.key.workload == table.first && shown.key.threads == table.second) print_row(shown, layout, name_width);
    }
  }
  if (!layout.ratio_metric.empty() && !rows_.empty()) {
    fmt::print("\nratio: median {} over that of \"{}\"\n", layout.ratio_metric, layout.baseline);
  }
  fmt::print("medians of the runs; ~ is half the distance between the least and the most, as a share of the median\n");
  print_remarks();
}

void report::print_remarks() const {
  for (const auto& [configuration, reason] : skipped_) fmt::print("\nskipped: {}: {}", configuration, reason);
  if (!skipped_.empty()) fmt::print("\n");
  for (const aimed& aim : aims_) {
    fmt::print("{} aim: {}: {:.3g} {}, aimed at {} {:.3g} {}\n", aim.reached() ? "reached" : "MISSED ", aim.subject,
               aim.value, aim.unit, aim.at_least ? "at least" : "at most", aim.limit, aim.unit);
  }
  for (const std::string& text : notes_) fmt::print("note: {}\n", text);
}

evaluation::json report::to_json() const {
  evaluation::json document = {{"schema", 1},
                               {"benchmark", benchmark_},
                               {"machine", describe_machine()},
                               {"settings", settings_},
                               {"results", evaluation::json::array()},
                               {"skipped", evaluation::json::array()},
                               {"aims", evaluation::json::array()},
                               {"notes", notes_}};
  for (const row& known : rows_) {
    evaluation::json metrics = evaluation::json::object();
    for (const auto& [name, samples] : known.metrics) metrics[name] = bench::to_json(samples);
    document["results"].push_back({{"workload", known.key.workload},
                                   {"configuration", known.key.configuration},
                                   {"threads", known.key.threads},
                                   {"metrics", metrics}});
  }
  for (const auto& [configuration, reason] : skipped_) {
    document["skipped"].push_back({{"configuration", configuration}, {"reason", reason}});
  }
  for (const aimed& aim : aims_) {
    document["aims"].push_back({{"what", aim.subject},
                                {"value", aim.value},
                                {"unit", aim.unit},
                                {"limit", aim.limit},
                                {"at_least", aim.at_least},
                                {"reached", aim.reached()}});
  }
  return document;
}

}  // namespace far::bench
