#include "svg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace far::bench {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

chart two_lines() {
  return {.file = "lines",
          .title = "a < b & c",
          .x = {.title = "fibers", .along = spacing::doublings},
          .y = {.title = "accesses/s"},
          .lines = {{"one", {{1, 100}, {16, 200}, {256, 400}}}, {"two", {{1, 50}, {16, 50}, {256, 50}}}},
          .groups = {},
          .series = {}};
}

TEST(svg, names_axes_lines_and_title) {
  const std::string text = to_svg(two_lines());
  EXPECT_NE(text.find("a &lt; b &amp; c"), std::string::npos);
  for (const char* part : {">fibers<", ">accesses/s<", ">one<", ">two<"}) EXPECT_NE(text.find(part), std::string::npos);
  EXPECT_EQ(count(text, "<circle"), 6u);
  EXPECT_EQ(count(text, "<svg"), count(text, "</svg>"));
}

TEST(svg, puts_points_where_the_axes_say) {
  const std::string text = to_svg(two_lines());
  std::vector<std::pair<double, double>> points;
  for (std::size_t at = 0; (at = text.find("cx=\"", at)) != std::string::npos;) {
    const std::size_t y = text.find("cy=\"", at);
    ASSERT_NE(y, std::string::npos);
    points.emplace_back(std::stod(text.substr(at + 4)), std::stod(text.substr(y + 4)));
    at = y;
  }
  ASSERT_EQ(points.size(), 6u);
  // 16 is the middle between 1 and 256, on a logarithmic axis.
  EXPECT_NEAR(points[1].first, (points[0].first + points[2].first) / 2, 0.2);
  // 400 is twice as high above 0 as 200.
  const double zero = 2 * points[1].second - points[2].second;
  EXPECT_NEAR(zero - points[0].second, (zero - points[1].second) / 2, 0.2);
  EXPECT_LT(points[2].second, points[0].second) << "up is more";
}

TEST(svg, marks_logarithmic_axes_at_round_numbers) {
  chart drawn = two_lines();
  drawn.y.along = spacing::logarithmic;
  const std::string text = to_svg(drawn);
  for (const char* tick : {">1<", ">16<", ">256<", ">50<", ">100<", ">200<"}) {
    EXPECT_NE(text.find(tick), std::string::npos) << tick;
  }
}

TEST(svg, leaves_out_bars_without_a_value) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const std::string text = to_svg({.file = "bars",
                                   .title = "bars",
                                   .x = {},
                                   .y = {.title = "ns"},
                                   .lines = {},
                                   .groups = {"first", "second"},
                                   .series = {{"a", {1, none}}, {"b", {2, 3}}}});
  EXPECT_EQ(count(text, "<rect"), 1u + 3u + 2u) << "the background, three bars, the legend";
  EXPECT_EQ(text.find("nan"), std::string::npos);
}

TEST(svg, says_that_nothing_was_measured) {
  EXPECT_NE(to_svg({.file = "x", .title = {}, .x = {}, .y = {}, .lines = {}, .groups = {}, .series = {}})
                .find("nothing was measured"),
            std::string::npos);
}

TEST(svg, writes_a_file_for_each_chart) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "farheap_svg_test" / "new";
  std::filesystem::remove_all(folder.parent_path());
  ASSERT_TRUE(write_charts({two_lines()}, folder.string()));
  std::ifstream file(folder / "lines.svg");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), to_svg(two_lines()));
  EXPECT_FALSE(write_charts({two_lines()}, (folder / "lines.svg").string())) << "a file is no folder";
  std::filesystem::remove_all(folder.parent_path());
}

}  // namespace
}  // namespace far::bench
