#include "trace/reports.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/scratch_folder.h"
#include "tests/support/trace_writer.h"
#include "trace/profile.h"

namespace far::trace {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string hash_of(const std::string& path) {
  const std::string text = read_file(path);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

class reports : public testing::Test {
 protected:
  void write_hostile_trace() const {
    test_writer writer(7);
    writer.maps("100000-200000 r-xp 00000000 00:01 1 /opt/a;b</script><b>\"'\xff\n");
    const std::uint32_t stack = writer.stack({0x100100, 0x100200});
    for (unsigned i = 0; i < 40; ++i) writer.miss((100 + i) * 4096, stack);
    for (unsigned i = 0; i < 20; ++i) writer.miss((9000 - 500 * (i % 7)) * 4096, stack, 1, miss_kind::first_touch);
    writer.hint_site("use.cc", 5, 100, 0);
    writer.end(60, 60);
    writer.save(dir_ / "misses-7.trace");
  }

  const scratch_folder folder_;
  const std::filesystem::path dir_ = folder_.path();
};

TEST_F(reports, writes_all_files_and_gives_back_the_summary) {
  write_hostile_trace();
  const result<std::string> summary = write_reports(dir_);
  ASSERT_TRUE(summary.ok()) << summary.error().message;
  EXPECT_EQ(read_file(dir_ / "summary.txt"), summary.value());
  for (const char* wanted : {"40 misses in 1 process", "\nand 20 first touches of pages without content",
                             "1 line explains 95% of the misses", "100.0%", "40: 100% reads; and 20 first touches\n",
                             "sequential, forward, 100% fit, runs of 40 pages, 1 thread",
                             "far_hint(ptr, .read_ahead = 32, .sequential = true);",
                             "The hint at use.cc:5 never found anything to do in 100 calls",
                             "Hints came before 60 of 120 misses, first touches among them (50.0%)"}) {
    EXPECT_NE(summary.value().find(wanted), std::string::npos) << wanted << "\n" << summary.value();
  }
}

TEST_F(reports, folded_stacks_have_the_root_first_and_no_stray_semicolons) {
  flame_node root;
  add_stack(root, {{"main", ""}, {"a;b\nc", ""}}, 3);
  add_stack(root, {{"main", ""}}, 2);
  EXPECT_EQ(folded_stacks(root), "main 2\nmain;a:b c 3\n");
}

TEST_F(reports, the_page_is_one_file_and_hostile_names_stay_text) {
  write_hostile_trace();
  ASSERT_TRUE(write_reports(dir_).ok());
  const std::string page = read_file(dir_ / "report.html");
  for (const char* mark : {"{report.css}", "{base.js}", "{flame.js}", "{report.js}", ">{data}<"}) {
    EXPECT_EQ(page.find(mark), std::string::npos) << mark;
  }
  const std::string begin = "id=\"data\">";
  const std::size_t at = page.find(begin) + begin.size();
  const std::string embedded = page.substr(at, page.find("</script>", at) - at);
  EXPECT_EQ(embedded.find('<'), std::string::npos);
  const auto data = nlohmann::json::parse(embedded, nullptr, false);
  ASSERT_TRUE(data.is_object());
  EXPECT_EQ(data["misses"], 40);
  EXPECT_EQ(data["flame"]["v"], 60);
  EXPECT_EQ(data["flame"]["c"][0]["n"], "[first touches]");
  EXPECT_EQ(data["flame"]["c"][0]["v"], 20);
  EXPECT_NE(data["lines"][0]["module"].get<std::string>().find("a;b</script><b>\"'"), std::string::npos);
  for (const char* outside : {"src=\"http", "href=\"http", "@import", "url(", "fetch("}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
}

TEST_F(reports, json_for_machines) {
  write_hostile_trace();
  const auto data = nlohmann::json::parse(report_json(read_reports(dir_).value()), nullptr, false);
  ASSERT_TRUE(data.is_object());
  EXPECT_EQ(data["explaining"], 1);
  EXPECT_EQ(data["lines"][0]["hint"], "far_hint(ptr, .read_ahead = 32, .sequential = true);");
  EXPECT_EQ(data["hint_sites"][0]["never_helps"], true);
  EXPECT_EQ(data["first_touches"], 20);
  EXPECT_EQ(data["lines"][0]["misses"], 40);
  EXPECT_EQ(data["lines"][0]["first_touches"], 20);
  EXPECT_EQ(data["timeline"]["first_touches"].size(), data["timeline"]["reads"].size());
  EXPECT_FALSE(data.contains("flame"));
}

TEST_F(reports, the_profile_names_sources_and_their_lines_that_missed) {
  const std::string kept = dir_ / "kept.c";
  const std::string edited = dir_ / "edited.c";
  std::ofstream(kept) << "int kept;\n";
  std::ofstream(edited) << "int edited;\n";
  const auto traced = std::filesystem::last_write_time(kept);
  std::filesystem::last_write_time(edited, traced + std::chrono::seconds(1));
  report analysis;
  analysis.units = {edited, kept};
  analysis.accesses = {{kept, 7, 30, {.kind = pattern_kind::random}},
                       {kept, 9, 12, {.kind = pattern_kind::forward}},
                       {"/nowhere/list.h", 3, 1, {}}};
  EXPECT_EQ(profile_text(analysis, traced),
            "farheap profile 1\nmisses 43\nsource unknown /nowhere/list.h\n"
            "access 3 1 unknown\nsource changed " +
                edited + "\nsource " + hash_of(kept) + " " + kept + "\naccess 7 30 random\naccess 9 12 forward\n");
}

TEST_F(reports, a_directory_without_traces_and_one_that_is_not_there) {
  EXPECT_NE(write_reports(dir_).error().message.find("no misses-PID.trace"), std::string::npos);
  EXPECT_NE(write_reports(dir_ / "no").error().message.find("cannot read the directory"), std::string::npos);
}

TEST_F(reports, an_empty_trace_does_not_hide_the_others) {
  write_hostile_trace();
  std::ofstream(dir_ / "misses-8.trace").flush();
  const result<std::string> summary = write_reports(dir_);
  ASSERT_TRUE(summary.ok()) << summary.error().message;
  EXPECT_NE(summary.value().find("40 misses in 1 process"), std::string::npos) << summary.value();
  EXPECT_NE(summary.value().find("note: misses-8.trace is empty;"), std::string::npos) << summary.value();
}

TEST_F(reports, a_damaged_trace_is_named) {
  std::ofstream(dir_ / "misses-1.trace") << "not a trace, but long enough to have a header of 40 bytes or more";
  EXPECT_NE(write_reports(dir_).error().message.find("misses-1.trace"), std::string::npos);
}

}  // namespace
}  // namespace far::trace
