// Line and bar charts as SVG: axes with units, legends, nothing else. For `farheap-bench NAME --plot DIR`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace far::bench {

// Logarithmic axes are marked at round numbers, or at powers of two. They leave out values of 0 and below.
enum class spacing { linear, logarithmic, doublings };

struct axis {
  std::string title;  // with the unit: "time, ms"
  spacing along = spacing::linear;
};

// Points in the order in which they are joined.
struct line {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

// Values for each group, in the order of the groups; not finite: there is none.
struct bars {
  std::string name;
  std::vector<double> values;
};

struct chart {
  std::string file;  // its name without folder and ending
  std::string title;
  axis x;  // of bars only the title is used
  axis y;
  std::vector<line> lines;          // a line chart, or ...
  std::vector<std::string> groups;  // ... a bar chart: `series` beside one another in each group
  std::vector<bars> series;
};

// The whole document. A chart without a single value becomes a frame that says so.
[[nodiscard]] std::string to_svg(const chart& drawn);

// Writes FOLDER/FILE.svg for each; makes the folder. Fails with what to do.
[[nodiscard]] result<void> write_charts(const std::vector<chart>& drawn, const std::string& folder);

}  // namespace far::bench
