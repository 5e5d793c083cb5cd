// The findings of a benchmark: samples of named metrics, the configurations that could not run, and the aims, as a
// table for people and as JSON for machines. docs/benchmarks.md documents every key.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/json.h"
#include "samples.h"

namespace far::bench {

// The subject of a row of results: a workload, run with a number of threads, in a configuration.
struct row_key {
  std::string workload;
  std::string configuration;
  int threads = 1;

  friend bool operator==(const row_key&, const row_key&) = default;
};

// A column of the printed table. The value is the metric's median divided by `scale`.
struct column {
  std::string metric;
  std::string heading;
  double scale = 1;
  int decimals = 2;
};

// How the table is printed.
struct table_layout {
  std::vector<column> columns;
  std::string ratio_metric;  // when set: a last column compares this metric with that of ...
  std::string baseline;      // ... this configuration, in the same workload and with as many threads
};

class report {
 public:
  explicit report(std::string benchmark) : benchmark_(std::move(benchmark)) {}

  // Records one sample, made by one run. Metric names end with their unit: "p50_ns", "throughput_bytes_per_s".
  void add(const row_key& key, const std::string& metric, double sample);

  // Records how the run was set up: "working_set_bytes", "runs".
  void set(const std::string& name, double value) { settings_[name] = value; }

  // Records a configuration that did not run, and why. The reason is printed, so that no blank looks like a win.
  void skip(const std::string& configuration, const std::string& reason);

  // Records a remark that a reader of the figures needs.
  void note(const std::string& text);

  // Records a figure that was aimed at: reached when `value` <= `limit` (or >= when `at_least`).
  void aim(const std::string& subject, double value, const std::string& unit, double limit, bool at_least);

  // The median of a metric, or 0 when it was never recorded.
  [[nodiscard]] double median(const row_key& key, const std::string& metric) const;
  [[nodiscard]] bool has(const row_key& key) const { return find(key) != nullptr; }
  // In the order of their first samples.
  [[nodiscard]] std::vector<row_key> keys() const;
  [[nodiscard]] const std::string& benchmark() const { return benchmark_; }

  // Prints to standard output: a table a workload, then what was skipped, the aims and the notes.
  void print(const table_layout& layout) const;

  [[nodiscard]] evaluation::json to_json() const;

 private:
  struct row {
    row_key key;
    std::map<std::string, std::vector<double>> metrics;
  };
  struct aimed {
    std::string subject;
    double value;
    std::string unit;
    double limit;
    bool at_least;

    [[nodiscard]] bool reached() const { return at_least ? value >= limit : value <= limit; }
  };

  [[nodiscard]] const row* find(const row_key& key) const;
  void print_row(const row& shown, const table_layout& layout, std::size_t name_width) const;
  void print_remarks() const;

  std::string benchmark_;
  std::map<std::string, double> settings_;
  std::vector<row> rows_;  // in the order of their first sample
  std::vector<std::pair<std::string, std::string>> skipped_;
  std::vector<aimed> aims_;
  std::vector<std::string> notes_;
};

// The facts about a machine that comparisons of figures need: kernel, processor, cores, memory, page settings, load.
[[nodiscard]] evaluation::json describe_machine();

}  // namespace far::bench
