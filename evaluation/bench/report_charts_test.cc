#include "report_charts.h"

#include <gtest/gtest.h>

namespace far::bench {
namespace {

report filled_report() {
  report figures("eden");
  figures.add({"batch 16", "clean", 1}, "page_ns", 300);
  figures.add({"batch 1", "clean", 1}, "page_ns", 1500);
  figures.add({"batch 1", "dirty", 1}, "page_ns", 5000);
  figures.add({"random", "clean", 1}, "page_ns", 7000);
  return figures;
}

const column shown{"page_ns", "us/page", 1000};

TEST(report_charts, a_curve_follows_its_points_and_leaves_out_what_was_not_measured) {
  const std::vector<line> drawn = curves_of(filled_report(), shown, {{1, "batch 1"}, {4, "batch 4"}, {16, "batch 16"}});
  ASSERT_EQ(drawn.size(), 2u);
  EXPECT_EQ(drawn[0].name, "clean");
  EXPECT_EQ(drawn[0].points, (std::vector<std::pair<double, double>>{{1, 1.5}, {16, 0.3}}));
  EXPECT_EQ(drawn[1].name, "dirty");
  EXPECT_EQ(drawn[1].points, (std::vector<std::pair<double, double>>{{1, 5}}));
}

TEST(report_charts, bars_show_the_workloads_that_begin_so) {
  EXPECT_EQ(bars_of(filled_report(), shown).groups, (std::vector<std::string>{"batch 16", "batch 1", "random"}));
  const chart drawn = bars_of(filled_report(), shown, "random");
  EXPECT_EQ(drawn.groups, std::vector<std::string>{"random"});
  ASSERT_EQ(drawn.series.size(), 1u);
  EXPECT_EQ(drawn.series[0].values, std::vector<double>{7});
}

}  // namespace
}  // namespace far::bench
