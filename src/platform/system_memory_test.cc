#include "platform/system_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/units.h"
#include "tests/support/scratch_folder.h"

namespace far::platform {
namespace {

// A make-believe /proc and cgroup file system.
class system_memory_test : public testing::Test {
 protected:
  void SetUp() override { put("/proc/meminfo", "MemTotal:  8388608 kB\nMemFree: 100 kB\nMemAvailable:  4194304 kB\n"); }

  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_ + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  system_memory read() {
    const result<system_memory> got = read_system_memory(root_);
    EXPECT_TRUE(got.ok()) << got.error().message;
    return got.value();
  }

  const scratch_folder folder_;
  const std::string root_ = folder_.path();
};

TEST_F(system_memory_test, WithoutCgroupsTheMachineCounts) {
  const system_memory memory = read();
  EXPECT_EQ(memory.physical_bytes, 8 * gib);
  EXPECT_EQ(memory.available_bytes, 4 * gib);
  EXPECT_FALSE(memory.cgroup_limit_bytes.has_value());
  EXPECT_EQ(memory.usable_bytes(), 8 * gib);
}

TEST_F(system_memory_test, Version2TakesTheLowestLimitOnTheWayUp) {
  put("/proc/self/cgroup", "0::/outer/inner\n");
  put("/proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  put("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
  put("/sys/fs/cgroup/outer/memory.max", "1073741824\n");
  put("/sys/fs/cgroup/outer/memory.current", "805306368\n");
  put("/sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file 268435456\nactive_file 7\n");
  const system_memory memory = read();
  EXPECT_EQ(memory.usable_bytes(), 1 * gib);
  EXPECT_EQ(memory.available_bytes, 512 * mib);
}

TEST_F(system_memory_test, Version1IsFoundAmongOtherControllers) {
  put("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n");
  put("/proc/self/mountinfo",
      "30 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
      "31 20 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
      "32 20 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2147483648\n");
  put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "3221225472\n");
  put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "0\n");
  const system_memory memory = read();
  EXPECT_EQ(memory.usable_bytes(), 2 * gib);
  EXPECT_EQ(memory.available_bytes, 2 * gib);
}

TEST_F(system_memory_test, AMountThatBeginsInsideTheHostsPath) {
  put("/proc/self/cgroup", "4:memory:/docker/abc\n");
  put("/proc/self/mountinfo", "31 20 0:27 /docker/abc /sys/fs/my\\040cgroup ro - cgroup cgroup rw,memory\n");
  put("/sys/fs/my cgroup/memory.limit_in_bytes", "536870912\n");
  EXPECT_EQ(read().usable_bytes(), 512 * mib);
}

TEST_F(system_memory_test, AFullCgroupHasNothingAvailable) {
  put("/proc/self/cgroup", "0::/x\n");
  put("/proc/self/mountinfo", "30 20 0:26 / /cg rw - cgroup2 none rw\n");
  put("/cg/x/memory.max", "1048576\n");
  put("/cg/x/memory.current", "2097152\n");
  EXPECT_EQ(read().available_bytes, 0u);
}

TEST_F(system_memory_test, PressureIsThatOfTheCgroupWhereThereIsOne) {
  put("/proc/pressure/memory",
      "some avg10=0.00 avg60=0.00 avg300=0.00 total=41740861\nfull avg10=0.00 total=6449343\n");
  put("/proc/self/cgroup", "0::/x\n");
  put("/proc/self/mountinfo", "30 20 0:26 / /cg rw - cgroup2 none rw\n");
  EXPECT_EQ(read().stalled_us, 41740861u);
  EXPECT_EQ(read().failures, 0u);
  put("/cg/x/memory.current", "4096\n");
  put("/cg/x/memory.pressure", "some avg10=1.50 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 total=5\n");
  put("/cg/x/memory.events", "low 0\nhigh 9\nmax 8\noom 3\noom_kill 1\n");
  EXPECT_EQ(read().stalled_us, 77u);
  EXPECT_EQ(read().failures, 3u);
}

// Beside version 1 there is the root of version 2, which has the pressure of the machine in a file of its own.
TEST_F(system_memory_test, StallsElsewhereAreNotThoseOfALimitedCgroupWithoutFigures) {
  put("/proc/pressure/memory", "some avg10=90.00 avg60=0.00 avg300=0.00 total=41740861\n");
  put("/proc/self/cgroup", "4:memory:/a\n0::/\n");
  put("/proc/self/mountinfo",
      "31 20 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
      "32 20 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  put("/sys/fs/cgroup/unified/memory.pressure", "some avg10=90.00 avg60=0.00 avg300=0.00 total=41740861\n");
  put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "0\n");
  EXPECT_EQ(read().stalled_us, 41740861u) << "no limit: the memory is the machine's";
  put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "536870912\n");
  EXPECT_EQ(read().stalled_us, 0u);
}

TEST_F(system_memory_test, TheLimitThatSlowsDownCounts) {
  put("/proc/self/cgroup", "0::/x\n");
  put("/proc/self/mountinfo", "30 20 0:26 / /cg rw - cgroup2 none rw\n");
  put("/cg/x/memory.max", "2147483648\n");
  put("/cg/x/memory.high", "1073741824\n");
  put("/cg/x/memory.current", "536870912\n");
  EXPECT_EQ(read().usable_bytes(), 1 * gib);
  EXPECT_EQ(read().available_bytes, 512 * mib);
}

TEST_F(system_memory_test, AnUnreadableMeminfoIsAnError) {
  std::filesystem::remove(root_ + "/proc/meminfo");
  const result<system_memory> got = read_system_memory(root_);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ENOENT);
  EXPECT_NE(got.error().message.find("/proc/meminfo"), std::string::npos);
}

TEST(SystemMemory, TheRealMachineMakesSense) {
  const result<system_memory> got = read_system_memory();
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_GT(got.value().physical_bytes, 64 * mib);
  EXPECT_LE(got.value().available_bytes, got.value().physical_bytes);
  EXPECT_LE(got.value().usable_bytes(), got.value().physical_bytes);
}

}  // namespace
}  // namespace far::platform
