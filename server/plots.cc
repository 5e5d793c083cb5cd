#include "server/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace far::server {
namespace {

// In the units of the picture, which the browser stretches to the width of the page.
constexpr double width = 600;
constexpr double height = 120;
constexpr double left = 80;  // for the labels of the values
constexpr double above = 6;
constexpr double below = 18;  // for those of the time

double x_of(std::uint64_t at_ns, std::uint64_t now_ns) {
  const double ago = static_cast<double>(now_ns - std::min(now_ns, at_ns)) / static_cast<double>(history::span_ns);
  return left + (1 - std::min(ago, 1.0)) * (width - left);
}

double y_of(double value, double top) {
  return above + (1 - std::clamp(value / top, 0.0, 1.0)) * (height - above - below);
}

}  // namespace

void history::note(const totals& now, const store::usage& used, std::uint64_t now_ns) {
  if (seen_at_ns_ != 0 && now_ns > seen_at_ns_) {
    const double seconds = static_cast<double>(now_ns - seen_at_ns_) / 1e9;
    points_.push_back({.at_ns = now_ns,
                       .requests = static_cast<double>(now.all_requests() - requests_) / seconds,
                       .bytes_read = static_cast<double>(now.bytes_read - bytes_read_) / seconds,
                       .bytes_written = static_cast<double>(now.bytes_written - bytes_written_) / seconds,
                       .held_bytes = used.held_blocks * block_bytes,
                       .spilled_bytes = used.spilled_blocks * block_bytes});
  }
  while (!points_.empty() && now_ns - points_.front().at_ns > span_ns) points_.pop_front();
  seen_at_ns_ = now_ns;
  requests_ = now.all_requests();
  bytes_read_ = now.bytes_read;
  bytes_written_ = now.bytes_written;
}

std::string plot(const std::string& title, const std::vector<plot_line>& lines, const std::deque<history_point>& points,
                 std::uint64_t now_ns, double top, const std::function<std::string(double)>& format) {
  for (const plot_line& line : lines) {
    for (const history_point& point : points) top = std::max(top, line.value(point));
  }
  const std::string label = format(top);
  if (top <= 0) top = 1;
  std::string drawn = fmt::format(
      "<svg class=plot role=img viewBox=\"0 0 {} {}\"><title>{}: at most {} in the last 5 minutes</title>\n"
      "<path class=axis d=\"M{} {}V{}H{}\"/>"
      "<text x={} y={} text-anchor=end>{}</text><text x={} y={} text-anchor=end>0</text>"
      "<text x={} y={}>5 min ago</text><text x={} y={} text-anchor=end>now</text>\n",
      width, height, title, label, left, above, height - below, width, left - 5, above + 9, label, left - 5,
      height - below, left, height - 5, width, height - 5);
  double name_y = above + 11;
  for (const plot_line& line : lines) {
    fmt::format_to(std::back_inserter(drawn), "<polyline stroke=\"{}\" points=\"", line.colour);
    for (const history_point& point : points) {
      fmt::format_to(std::back_inserter(drawn), "{:.1f},{:.1f} ", x_of(point.at_ns, now_ns),
                     y_of(line.value(point), top));
    }
    drawn += "\"/>\n";
    if (lines.size() < 2) continue;
    fmt::format_to(std::back_inserter(drawn), "<text x={} y={} fill=\"{}\">{}</text>\n", left + 8, name_y, line.colour,
                   line.name);
    name_y += 14;
  }
  return drawn + "</svg>\n";
}

}  // namespace far::server
