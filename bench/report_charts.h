// Charts of a report, for benchmarks that have none of their own.
#pragma once

#include <string>
#include <vector>

#include "report.h"
#include "svg.h"

namespace far::bench {

// Medians of a metric: a group for each workload (and number of threads), a bar for each configuration.
[[nodiscard]] chart bars_of(const report& figures, const column& shown);

// One for each column of the table.
[[nodiscard]] std::vector<chart> charts_of(const report& figures, const table_layout& layout);

}  // namespace far::bench
