#include "top.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/units.h"

namespace far::tools {
namespace {

preload::job_process process(pid_t pid, const char* program, std::uint64_t misses) {
  preload::job_process one;
  one.pid = pid;
  one.running = true;
  std::strcpy(one.program, program);
  one.counted.misses = misses;
  one.counted.wait_ns = misses * 1000;
  one.counted.local_bytes = 96 * mib;
  one.counted.budget_bytes = 128 * mib;
  one.counted.far_bytes = 3 * gib;
  return one;
}

job_snapshot job(std::uint64_t taken_ns, std::vector<preload::job_process> processes) {
  job_snapshot snapshot;
  snapshot.id = 7;
  snapshot.taken_ns = taken_ns;
  snapshot.totals.processes = snapshot.totals.running = processes.size();
  snapshot.totals.counted.budget_bytes = 256 * mib;
  snapshot.processes = std::move(processes);
  return snapshot;
}

TEST(Top, SizesAreShort) {
  EXPECT_EQ(short_size(0), "0B");
  EXPECT_EQ(short_size(1023), "1.00K");
  EXPECT_EQ(short_size(96 * mib), "96.0M");
  EXPECT_EQ(short_size(128 * mib), "128M");
  EXPECT_EQ(short_size(1536 * mib), "1.50G");
  for (std::uint64_t bytes = 1; bytes < (1ULL << 62); bytes += bytes / 8 + 1) {
    EXPECT_LE(short_size(bytes).size(), 5u) << bytes;
  }
}

TEST(Top, RatesAreThoseOfTheTimeBetween) {
  const std::vector<job_snapshot> before{job(1'000'000'000, {process(10, "a", 100)})};
  const std::vector<job_snapshot> after{job(3'000'000'000, {process(10, "a", 700), process(11, "b", 50)})};
  const std::vector<top_row> rows = compare(before, after);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_DOUBLE_EQ(rows[0].misses_per_s, 300);
  EXPECT_DOUBLE_EQ(rows[0].waited_percent, 0.03);
  EXPECT_EQ(rows[1].misses_per_s, 0) << "a process that was not there before has no rate yet";
}

TEST(Top, AProcessThatEndedIsNotShown) {
  std::vector<job_snapshot> after{job(2, {process(10, "a", 1), process(11, "b", 1)})};
  after[0].processes[0].running = false;
  const std::vector<top_row> rows = compare({}, after);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].process.pid, 11);
}

TEST(Top, Orders) {
  std::vector<top_row> rows(3);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].process = process(static_cast<pid_t>(20 - i), "x", 0);
  rows[1].misses_per_s = 5;
  rows[2].process.counted.local_bytes = 200 * mib;
  const auto first = [&rows](top_order order) {
    sort_rows(rows, order);
    return rows.front().process.pid;
  };
  EXPECT_EQ(first(top_order::misses), 19);
  EXPECT_EQ(first(top_order::local), 18);
  EXPECT_EQ(first(top_order::pid), 18);
}

TEST(Top, AScreenHoldsWhatFits) {
  std::vector<preload::job_process> many;
  for (int i = 0; i < 100; ++i) many.push_back(process(1000 + i, "a_program_with_quite_a_long_name", 1));
  const std::vector<job_snapshot> jobs{job(1, many)};
  const std::vector<top_row> rows = compare({}, jobs);
  for (const std::size_t columns : {20, 80, 200}) {
    const std::vector<std::string> screen = render(jobs, rows, top_order::misses, 24, columns);
    EXPECT_EQ(screen.size(), 24u);
    for (const std::string& line : screen) EXPECT_LE(line.size(), columns);
  }
  const std::vector<std::string> screen = render(jobs, rows, top_order::misses, 24, 80);
  EXPECT_NE(screen[3].find("misses/s  hits/s evicted/s waited% errors"), std::string::npos) << screen[3];
  EXPECT_NE(screen[4].find("   1000 a_program_ 96.0M/128M   3.00G"), std::string::npos) << screen[4];
}

}  // namespace
}  // namespace far::tools
