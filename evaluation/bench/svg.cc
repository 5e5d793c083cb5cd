#include "svg.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <system_error>

namespace far::bench {

namespace {

constexpr double width = 960;
constexpr double height = 480;
constexpr double left = 80;
constexpr double right = 660;  // to the right of it is the legend
constexpr double top = 48;
constexpr double bottom = 410;
constexpr double legend_line = 20;

// Distinguishable also without seeing all colours (Okabe and Ito's palette).
constexpr std::array colours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"};

const char* colour(std::size_t index) {
  return colours[index % colours.size()];
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char one : text) {
    if (one == '<') {
      safe += "&lt;";
    } else if (one == '&') {
      safe += "&amp;";
    } else if (one == '>') {
      safe += "&gt;";
    } else {
      safe += one;
    }
  }
  return safe;
}

// "20 k", "1.5 M".
std::string short_number(double value) {
  constexpr std::array units = {std::pair{1e9, " G"}, std::pair{1e6, " M"}, std::pair{1e3, " k"}};
  for (const auto& [size, suffix] : units) {
    if (std::abs(value) >= size) return fmt::format("{:.4g}{}", value / size, suffix);
  }
  return fmt::format("{:.4g}", value);
}

// Values along one direction, and where they lie on the page.
class scale {
 public:
  scale(const axis& described, double from_page, double to_page)
      : along_(described.along),
        logarithmic_(described.along != spacing::linear),
        from_page_(from_page),
        to_page_(to_page) {}

  void include(double value) {
    if (!std::isfinite(value) || (logarithmic_ && value <= 0)) return;
    least_ = empty_ ? value : std::min(least_, value);
    most_ = empty_ ? value : std::max(most_, value);
    empty_ = false;
  }

  // Extends the range to round numbers. Linear ones of values begin at 0, so that lengths can be compared.
  void settle(bool from_zero) {
    if (logarithmic_) {
      if (most_ <= least_) most_ = least_ * 10;
      return;
    }
    if (from_zero) least_ = std::min(least_, 0.0);
    if (most_ <= least_) most_ = least_ + 1;
    step_ = round_step((most_ - least_) / 6);
    if (from_zero) most_ = std::ceil(most_ / step_ * (1 - 1e-9)) * step_;
  }

  [[nodiscard]] bool empty() const { return empty_; }
  [[nodiscard]] bool shows(double value) const { return std::isfinite(value) && (!logarithmic_ || value > 0); }
  [[nodiscard]] double least() const { return least_; }

  [[nodiscard]] double at(double value) const {
    const double share =
        logarithmic_ ? std::log(value / least_) / std::log(most_ / least_) : (value - least_) / (most_ - least_);
    return from_page_ + share * (to_page_ - from_page_);
  }

  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> found;
    if (along_ == spacing::doublings) {
      for (double tick = std::exp2(std::ceil(std::log2(least_) - 1e-9)); tick <= most_ * 1.0001; tick *= 2) {
        found.push_back(tick);
      }
    } else if (along_ == spacing::logarithmic) {
      const bool only_tens = most_ / least_ > 20'000;
      for (double ten = std::pow(10, std::floor(std::log10(least_) + 1e-9)); ten <= most_ * 1.0001; ten *= 10) {
        for (const double tick : {ten, 2 * ten, 5 * ten}) {
          if (tick >= least_ * 0.9999 && tick <= most_ * 1.0001 && (tick == ten || !only_tens)) found.push_back(tick);
        }
      }
    } else {
      for (double tick = std::ceil(least_ / step_ - 1e-9) * step_; tick <= most_ + step_ * 1e-6; tick += step_) {
        found.push_back(std::abs(tick) < step_ * 1e-6 ? 0 : tick);
      }
    }
    return found;
  }

 private:
  // 1, 2 or 5 times a power of ten, at least `raw`.
  [[nodiscard]] static double round_step(double raw) {
    const double power = std::pow(10, std::floor(std::log10(raw)));
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * power >= raw * (1 - 1e-9)) return factor * power;
    }
    return 10 * power;
  }

  spacing along_;
  bool logarithmic_;
  double from_page_;
  double to_page_;
  double least_ = 0;
  double most_ = 1;
  double step_ = 1;
  bool empty_ = true;
};

class page {
 public:
  explicit page(const chart& drawn) : drawn_(drawn) {
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
        width, height);
    write((left + right) / 2, top - 20, "middle", drawn.title, "font-size=\"16\"");
  }

  void write(double x, double y, const char* anchor, const std::string& text, const std::string& more = {}) {
    text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor, more,
                         escaped(text));
  }

  void draw_y(const scale& y) {
    for (const double tick : y.ticks()) {
      const double at = y.at(tick);
      text_ += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#dddddd\"/>\n", left, at, right);
      write(left - 8, at + 4, "end", short_number(tick));
    }
    const double middle = (top + bottom) / 2;
    write(20, middle, "middle", drawn_.y.title, fmt::format("transform=\"rotate(-90 20 {:.1f})\"", middle));
  }

  void draw_frame() {
    text_ += fmt::format("<path d=\"M{0:.1f} {1:.1f}V{2:.1f}H{3:.1f}\" fill=\"none\" stroke=\"black\"/>\n", left, top,
                         bottom, right);
    write((left + right) / 2, bottom + 44, "middle", drawn_.x.title);
  }

  void draw_x(const scale& x) {
    for (const double tick : x.ticks()) {
      const double at = x.at(tick);
      text_ += fmt::format("<path d=\"M{:.1f} {:.1f}v5\" stroke=\"black\"/>\n", at, bottom);
      write(at, bottom + 20, "middle", short_number(tick));
    }
  }

  void name(std::size_t index, const std::string& text) {
    const double y = top + 8 + static_cast<double>(index) * legend_line;
    text_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", right + 20,
                         y - 10, colour(index));
    write(right + 38, y, "start", text);
  }

  void draw_line(std::size_t index, const line& one, const scale& x, const scale& y) {
    std::string path;
    std::size_t shown = 0;
    for (const auto& [x_value, y_value] : one.points) {
      if (!x.shows(x_value) || !y.shows(y_value)) continue;
      path += fmt::format("{}{:.1f} {:.1f}", shown++ == 0 ? "M" : "L", x.at(x_value), y.at(y_value));
      // Marks only where there is room for them.
      if (one.points.size() > 40) continue;
      text_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x.at(x_value), y.at(y_value),
                           colour(index));
    }
    text_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", path, colour(index));
  }

  void draw_bar(std::size_t index, double from, double bar_width, double value, const scale& y) {
    const double at = y.at(value);
    text_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", from, at,
                         bar_width, std::max(bottom - at, 0.0), colour(index));
  }

  [[nodiscard]] std::string end() && { return std::move(text_) + "</svg>\n"; }

 private:
  const chart& drawn_;
  std::string text_;
};

void draw_lines(page& on, const chart& drawn) {
  scale x(drawn.x, left, right);
  scale y(drawn.y, bottom, top);
  for (const line& one : drawn.lines) {
    for (const auto& [x_value, y_value] : one.points) {
      if (!x.shows(x_value) || !y.shows(y_value)) continue;
      x.include(x_value);
      y.include(y_value);
    }
  }
  if (y.empty()) return on.write((left + right) / 2, (top + bottom) / 2, "middle", "nothing was measured");
  x.settle(false);
  y.settle(true);
  on.draw_y(y);
  on.draw_x(x);
  for (std::size_t i = 0; i < drawn.lines.size(); ++i) {
    on.draw_line(i, drawn.lines[i], x, y);
    on.name(i, drawn.lines[i].name);
  }
}

void draw_bars(page& on, const chart& drawn) {
  scale y(drawn.y, bottom, top);
  for (const bars& one : drawn.series) {
    for (const double value : one.values) y.include(value);
  }
  if (y.empty()) return on.write((left + right) / 2, (top + bottom) / 2, "middle", "nothing was measured");
  if (drawn.y.along != spacing::linear) y.include(y.least() / 2);  // the least bar has a height, too
  y.settle(true);
  on.draw_y(y);
  const double group_width = (right - left) / static_cast<double>(drawn.groups.size());
  const double bar_width = group_width * 0.8 / static_cast<double>(drawn.series.size());
  for (std::size_t group = 0; group < drawn.groups.size(); ++group) {
    const double from = left + group_width * (static_cast<double>(group) + 0.1);
    // Every second one a line lower, so that long names do not overlap.
    on.write(from + group_width * 0.4, bottom + (group % 2 == 0 ? 16 : 30), "middle", drawn.groups[group]);
    for (std::size_t i = 0; i < drawn.series.size(); ++i) {
      const std::vector<double>& values = drawn.series[i].values;
      if (group >= values.size() || !y.shows(values[group])) continue;
      on.draw_bar(i, from + bar_width * static_cast<double>(i), bar_width, values[group], y);
    }
  }
  for (std::size_t i = 0; i < drawn.series.size(); ++i) on.name(i, drawn.series[i].name);
}

}  // namespace

std::string to_svg(const chart& drawn) {
  page on(drawn);
  if (drawn.groups.empty()) {
    draw_lines(on, drawn);
  } else {
    draw_bars(on, drawn);
  }
  on.draw_frame();
  return std::move(on).end();
}

result<void> write_charts(const std::vector<chart>& drawn, const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    return error{
        fmt::format("cannot make the folder {}: {}; give --plot one that can be written", folder, failed.message()),
        failed.value()};
  }
  for (const chart& one : drawn) {
    const std::string path = folder + "/" + one.file + ".svg";
    const std::string text = to_svg(one);
    FILE* const file = fopen(path.c_str(), "we");
    bool written = file != nullptr && fwrite(text.data(), 1, text.size(), file) == text.size();
    if (file != nullptr) written = fclose(file) == 0 && written;
    if (!written) {
      return error{fmt::format("cannot write {}: {}; give --plot a folder that can be written", path, strerror(errno)),
                   errno};
    }
  }
  return {};
}

}  // namespace far::bench
