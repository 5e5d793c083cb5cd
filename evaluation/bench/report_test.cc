#include "report.h"

#include <gtest/gtest.h>

#include "common/json.h"

namespace far::bench {
namespace {

const row_key swap_row{"random_read", "swap", 2};

report filled_report() {
  report figures("pager");
  figures.set("runs", 3);
  for (const double sample : {30.0, 10.0, 20.0}) figures.add(swap_row, "p50_ns", sample);
  figures.add({"random_read", "farheap", 2}, "p50_ns", 5);
  return figures;
}

TEST(report, keeps_every_sample_and_tells_the_median) {
  const evaluation::json document = filled_report().to_json();
  EXPECT_EQ(document.at("schema"), 1);
  EXPECT_EQ(document.at("benchmark"), "pager");
  EXPECT_EQ(document.at("settings").at("runs"), 3);
  ASSERT_EQ(document.at("results").size(), 2u);
  const evaluation::json& row = document.at("results")[0];
  EXPECT_EQ(row.at("workload"), "random_read");
  EXPECT_EQ(row.at("configuration"), "swap");
  EXPECT_EQ(row.at("threads"), 2);
  const evaluation::json& metric = row.at("metrics").at("p50_ns");
  EXPECT_EQ(metric.at("median"), 20.0);
  EXPECT_EQ(metric.at("min"), 10.0);
  EXPECT_EQ(metric.at("max"), 30.0);
  EXPECT_EQ(metric.at("samples"), evaluation::json({30.0, 10.0, 20.0}));
}

TEST(report, median_of_what_was_never_measured_is_zero) {
  const report figures = filled_report();
  EXPECT_EQ(figures.median(swap_row, "p50_ns"), 20);
  EXPECT_EQ(figures.median(swap_row, "p99_ns"), 0);
  EXPECT_EQ(figures.median({"random_read", "swap", 1}, "p50_ns"), 0);
  EXPECT_FALSE(figures.has({"random_read", "swap", 1}));
}

TEST(report, a_peer_that_did_not_run_leaves_its_reason_once) {
  report figures("pager");
  figures.skip("swap", "needs root");
  figures.skip("swap", "needs root");
  figures.skip("swap", "no loop device");
  const evaluation::json skipped = figures.to_json().at("skipped");
  ASSERT_EQ(skipped.size(), 2u);
  EXPECT_EQ(skipped[0].at("configuration"), "swap");
  EXPECT_EQ(skipped[0].at("reason"), "needs root");
  EXPECT_EQ(skipped[1].at("reason"), "no loop device");
}

TEST(report, tells_whether_an_aim_was_reached) {
  report figures("pager");
  figures.aim("latency", 3.9, "us", 4, false);
  figures.aim("latency", 4.1, "us", 4, false);
  figures.aim("bandwidth", 1.4, "GB/s", 1.5, true);
  figures.aim("bandwidth", 1.6, "GB/s", 1.5, true);
  const evaluation::json aims = figures.to_json().at("aims");
  EXPECT_EQ(aims[0].at("reached"), true);
  EXPECT_EQ(aims[1].at("reached"), false);
  EXPECT_EQ(aims[2].at("reached"), false);
  EXPECT_EQ(aims[3].at("reached"), true);
}

TEST(report, prints_medians_spread_ratios_and_reasons) {
  report figures = filled_report();
  figures.skip("zram", "no such device");
  testing::internal::CaptureStdout();
  figures.print({{{"p50_ns", "p50", 1, 1}, {"absent_ns", "absent", 1, 1}}, "p50_ns", "farheap"});
  fflush(stdout);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("random_read, 2 threads"), std::string::npos) << text;
  EXPECT_NE(text.find("20.0 ~50%"), std::string::npos) << text;
  EXPECT_NE(text.find("4x"), std::string::npos) << text;
  EXPECT_NE(text.find("zram: no such device"), std::string::npos) << text;
}

TEST(describe_machine, names_what_figures_depend_on) {
  const evaluation::json machine = describe_machine();
  EXPECT_FALSE(machine.at("kernel").get<std::string>().empty());
  EXPECT_GE(machine.at("cores").get<int>(), 1);
  EXPECT_GT(machine.at("memory_bytes").get<double>(), 0);
}

}  // namespace
}  // namespace far::bench
