#include "preload/report.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "base/units.h"
#include "tests/support/scratch_folder.h"

namespace far::preload {
namespace {

run_report example() {
  run_report report;
  std::uint64_t value = 1000;
  for (const statistic_field& field : statistic_fields()) report.counted.*field.member = value++;
  report.pid = 42;
  report.program = "/usr/bin/python3";
  report.far_uri = "file:";
  report.fault_mode = "thread";
  report.policy = "fifo";
  return report;
}

std::string format(const run_report& report) {
  std::array<char, stats_json_bytes> text;
  return {text.data(), format_stats_json(report, text)};
}

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class report_test : public testing::Test {
 protected:
  const scratch_folder folder_;
  const std::string directory_ = folder_.path();
};

TEST(Report, EveryStatisticAppearsUnderItsName) {
  const run_report report = example();
  const std::string text = format(report);
  std::set<std::uint64_t> values;
  for (const statistic_field& field : statistic_fields()) {
    const std::string entry = "\"" + std::string(field.name) + "\": " + std::to_string(report.counted.*field.member);
    EXPECT_NE(text.find(entry), std::string::npos) << entry << " in " << text;
    EXPECT_TRUE(values.insert(report.counted.*field.member).second) << field.name << " is listed twice";
  }
  EXPECT_EQ(report.counted.misses, 1007u) << "the table is in the order of the struct";
  EXPECT_EQ(text.find("{\"budget_bytes\": 1000, "), 0u);
  EXPECT_NE(text.find("\"page_bytes\": 4096, \"pid\": 42, \"program\": \"/usr/bin/python3\""), std::string::npos);
  EXPECT_NE(text.find("\"far\": \"file:\", \"fault_mode\": \"thread\", \"policy\": \"fifo\"}\n"), std::string::npos);
}

TEST(Report, StringsAreEscaped) {
  run_report report = example();
  report.program = "a\"b\\c\nd\xc3\xa9 \xff\xc3 \xed\xa0\x80 \xf0\x9f\x98\x80";
  const std::string text = format(report);
  EXPECT_NE(text.find("\"program\": \"a\\\"b\\\\c\\u000ad\xc3\xa9 \\ufffd\\ufffd \\ufffd\\ufffd\\ufffd "
                      "\xf0\x9f\x98\x80\""),
            std::string::npos)
      << text;
}

TEST(Report, AnyStringsFitTheBuffer) {
  const std::string hostile(100000, '\x01');
  run_report report = example();
  report.counted = {};
  for (const statistic_field& field : statistic_fields()) report.counted.*field.member = ~std::uint64_t{0};
  report.program = report.far_uri = hostile.c_str();
  const std::string text = format(report);
  EXPECT_LE(text.size(), stats_json_bytes);
  EXPECT_EQ(text.substr(text.size() - 2), "}\n");
}

TEST(Report, TheExitLine) {
  engine::statistics counted;
  counted.budget_bytes = counted.peak_local_bytes = 512 * mib;
  counted.peak_far_bytes = counted.peak_far_stored_bytes = 1536 * mib;
  counted.misses = 12345;
  counted.prefetch_hits = 45678;
  counted.wait_ns = 1'230'000'000;
  testing::internal::CaptureStderr();
  log_exit_line(counted);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "farheap: peak local 512 MiB of 512 MiB, far 1.50 GiB, 12345 misses, 45678 prefetch hits, waited 1.23 s\n");
  counted.peak_far_stored_bytes = 500 * mib;
  testing::internal::CaptureStderr();
  log_exit_line(counted);
  EXPECT_NE(testing::internal::GetCapturedStderr().find(" far 1.50 GiB stored in 500 MiB, "), std::string::npos);
}

TEST(Report, UsageIsThatOfThisProcess) {
  const process_usage used = read_process_usage();
  EXPECT_GT(used.peak_rss_bytes, 256 * kib);
  EXPECT_LT(used.peak_rss_bytes, 1 * tib);
  EXPECT_GT(used.user_ns + used.system_ns, 0u);
}

TEST_F(report_test, TheFileIsReplacedAndPrivate) {
  const std::string path = directory_ + "/stats.json";
  std::ofstream(path) << std::string(100000, 'x');
  const result<void> written = write_stats_json(path.c_str(), example());
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(contents(path), format(example()));
  struct stat status{};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1) << "a temporary file is left";
}

TEST_F(report_test, ASymbolicLinkSurvives) {
  const std::string target = directory_ + "/target";
  const std::string link = directory_ + "/link";
  std::ofstream(target).flush();
  std::filesystem::create_symlink(target, link);
  ASSERT_TRUE(write_stats_json(link.c_str(), example()).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(contents(target), format(example()));
}

TEST_F(report_test, APipeWithoutAReaderDoesNotHold) {
  const std::string pipe = directory_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const result<void> written = write_stats_json(pipe.c_str(), example());
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ENXIO);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST_F(report_test, AMissingDirectoryIsNamed) {
  const std::string path = directory_ + "/none/stats.json";
  const result<void> written = write_stats_json(path.c_str(), example());
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ENOENT);
  EXPECT_NE(written.error().message.find(path), std::string::npos);
}

}  // namespace
}  // namespace far::preload
