#include "preload/settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

#include "base/units.h"

namespace far::preload {
namespace {

std::map<std::string, std::string> environment;

const char* look_up(const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? nullptr : found->second.c_str();
}

class settings_test : public testing::Test {
 protected:
  void SetUp() override { environment = {{"FARHEAP_LOCAL_BYTES", "536870912"}}; }

  // The error that `value` of `name` gives; it must name the variable.
  static std::string failure(const std::string& name, const std::string& value) {
    environment[name] = value;
    const result<settings> got = read_settings(look_up);
    if (got.ok()) return "no error";
    EXPECT_EQ(got.error().message.find(name), 0u) << got.error().message;
    EXPECT_EQ(got.error().message.find('\n'), std::string::npos);
    return got.error().message;
  }
};

TEST_F(settings_test, WithoutABudgetTheRuntimeStaysInactive) {
  environment = {{"FARHEAP_FAULT_MODE", "nonsense"}};
  const result<settings> got = read_settings(look_up);
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_FALSE(got.value().active);
}

TEST_F(settings_test, ABudgetAloneTakesTheDefaults) {
  const result<settings> got = read_settings(look_up);
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_TRUE(got.value().active);
  EXPECT_EQ(got.value().budget_bytes, 512 * mib);
  EXPECT_EQ(got.value().far_uri, "file:");
  EXPECT_EQ(got.value().far_uri_under_limit, "");
  EXPECT_EQ(got.value().mode, std::nullopt);
  EXPECT_EQ(got.value().policy, "2q");
  EXPECT_EQ(got.value().pace.free_share, 0);
  EXPECT_EQ(got.value().pace.pages_a_batch, 64u);
  EXPECT_TRUE(got.value().stats_json.empty());
  EXPECT_FALSE(got.value().verbose);
  EXPECT_TRUE(got.value().in_main_process());
}

TEST_F(settings_test, EveryVariableArrives) {
  environment["FARHEAP_LOCAL_BYTES"] = "64M";
  environment["FARHEAP_FAR"] = "memory:?latency=5us";
  environment["FARHEAP_FAR_UNDER_LIMIT"] = "file:";
  environment["FARHEAP_FAULT_MODE"] = "inline";
  environment["FARHEAP_POLICY"] = "fifo";
  environment["FARHEAP_FREE_AHEAD"] = "5%";
  environment["FARHEAP_BATCH"] = "16";
  environment["FARHEAP_STATS_JSON"] = "/tmp/stats.json";
  environment["FARHEAP_TRACE_DIR"] = "/tmp/misses";
  environment["FARHEAP_TRACE_SAMPLE"] = "10";
  environment["FARHEAP_OBJECT_BYTES"] = "128";
  environment["FARHEAP_VERBOSE"] = "1";
  environment["FARHEAP_MAIN_PID"] = std::to_string(getpid());
  const result<settings> got = read_settings(look_up);
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(got.value().budget_bytes, 64 * mib);
  EXPECT_EQ(got.value().far_uri, "memory:?latency=5us");
  EXPECT_EQ(got.value().far_uri_under_limit, "file:");
  EXPECT_EQ(got.value().mode, pager::fault_mode::in_line);
  EXPECT_EQ(got.value().policy, "fifo");
  EXPECT_EQ(got.value().pace.free_share, 0.05);
  EXPECT_EQ(got.value().pace.pages_a_batch, 16u);
  EXPECT_EQ(got.value().stats_json, "/tmp/stats.json");
  EXPECT_EQ(got.value().trace_directory, "/tmp/misses");
  EXPECT_EQ(got.value().trace_sample, 10U);
  EXPECT_EQ(got.value().object_bytes, 128U);
  EXPECT_TRUE(got.value().verbose);
  EXPECT_TRUE(got.value().in_main_process());
}

TEST_F(settings_test, AChildIsNotTheMainProcess) {
  environment["FARHEAP_MAIN_PID"] = std::to_string(getppid());
  const result<settings> got = read_settings(look_up);
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_FALSE(got.value().in_main_process());
}

TEST_F(settings_test, WrongValuesAreNamed) {
  EXPECT_NE(failure("FARHEAP_LOCAL_BYTES", "lots").find("'lots'"), std::string::npos);
  EXPECT_NE(failure("FARHEAP_LOCAL_BYTES", "15M").find("16.0 MiB"), std::string::npos);
  environment["FARHEAP_LOCAL_BYTES"] = "16M";
  EXPECT_NE(failure("FARHEAP_VERBOSE", "yes").find("'yes'"), std::string::npos);
  environment.erase("FARHEAP_VERBOSE");
  EXPECT_NE(failure("FARHEAP_MAIN_PID", "12x").find("'12x'"), std::string::npos);
  EXPECT_NE(failure("FARHEAP_MAIN_PID", "-3").find("'-3'"), std::string::npos);
  environment.erase("FARHEAP_MAIN_PID");
  EXPECT_NE(failure("FARHEAP_STATS_JSON", "here.json").find("'here.json'"), std::string::npos);
  environment.erase("FARHEAP_STATS_JSON");
  EXPECT_NE(failure("FARHEAP_FREE_AHEAD", "26%").find("up to 25%"), std::string::npos);
  environment.erase("FARHEAP_FREE_AHEAD");
  EXPECT_NE(failure("FARHEAP_BATCH", "65").find("1 to 64"), std::string::npos);
  environment.erase("FARHEAP_BATCH");
  EXPECT_NE(failure("FARHEAP_TRACE_DIR", "here").find("'here'"), std::string::npos);
  environment.erase("FARHEAP_TRACE_DIR");
  EXPECT_NE(failure("FARHEAP_TRACE_SAMPLE", "0").find("'0'"), std::string::npos);
  environment.erase("FARHEAP_TRACE_SAMPLE");
  EXPECT_NE(failure("FARHEAP_FAULT_MODE", "magic").find("magic"), std::string::npos);
}

}  // namespace
}  // namespace far::preload
