// What a server did in the last minutes, and plots of it: SVG inside the page, without scripts and without other files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "server/metrics.h"

namespace far::server {

// A point of time: what was lent then, and what was done in each second since the point before.
struct history_point {
  std::uint64_t at_ns = 0;
  double requests = 0;
  double bytes_read = 0;
  double bytes_written = 0;
  std::uint64_t held_bytes = 0;
  std::uint64_t spilled_bytes = 0;  // of these, on disk
};

// Not thread-safe.
class history {
 public:
  static constexpr std::uint64_t span_ns = 300'000'000'000;
  static constexpr std::uint64_t step_ns = 1'000'000'000;

  // Whether the next point is due.
  [[nodiscard]] bool is_due(std::uint64_t now_ns) const { return seen_at_ns_ == 0 || now_ns >= seen_at_ns_ + step_ns; }
  // Adds a point, and forgets those that are older than span_ns. The first call only sets the beginning.
  void note(const totals& now, const store::usage& used, std::uint64_t now_ns);
  [[nodiscard]] const std::deque<history_point>& points() const { return points_; }

 private:
  std::deque<history_point> points_;  // oldest first
  std::uint64_t seen_at_ns_ = 0;
  std::uint64_t requests_ = 0;
  std::uint64_t bytes_read_ = 0;
  std::uint64_t bytes_written_ = 0;
};

struct plot_line {
  std::string name;  // shown beside the plot when there are several
  const char* colour = "#3b7dd8";
  std::function<double(const history_point&)> value;
};

// One plot as an <svg> element: from span_ns before now until now, and from 0 up to the highest value, or to `top` when
// that is not 0. `format` makes a value readable. Requires: names and title need no escaping in HTML.
[[nodiscard]] std::string plot(const std::string& title, const std::vector<plot_line>& lines,
                               const std::deque<history_point>& points, std::uint64_t now_ns, double top,
                               const std::function<std::string(double)>& format);

}  // namespace far::server
