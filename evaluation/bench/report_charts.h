// Charts of a report: bars of all of it, for benchmarks that have no charts of their own, and curves over a number.
#pragma once

#include <string>
#include <vector>

#include "report.h"
#include "svg.h"

namespace far::bench {

// Medians of a metric: a group for each workload (and number of threads), a bar for each configuration. Only of
// workloads whose names begin with `beginning`.
[[nodiscard]] chart bars_of(const report& figures, const column& shown, const std::string& beginning = {});

// A workload whose medians stand at `x` of a curve.
struct curve_point {
  double x;
  std::string workload;
};

// Medians of a metric over a number: a line for each configuration that was measured at one of the points, in their
// order. Requires: a workload ran with one number of threads.
[[nodiscard]] std::vector<line> curves_of(const report& figures, const column& shown,
                                          const std::vector<curve_point>& points);

// One for each column of the table.
[[nodiscard]] std::vector<chart> charts_of(const report& figures, const table_layout& layout);

}  // namespace far::bench
