#include "trace/record/trace_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/support/scratch_folder.h"

namespace far::trace {
namespace {

namespace fs = std::filesystem;

struct record {
  record_type type;
  std::string payload;
};

struct contents {
  file_header header{};
  std::vector<record> records;
  bool whole = false;  // nothing is left behind the last record

  [[nodiscard]] std::size_t count(record_type type) const {
    return static_cast<std::size_t>(
        std::count_if(records.begin(), records.end(), [type](const record& entry) { return entry.type == type; }));
  }
};

template <typename T>
T read_as(const std::string& bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), std::min(sizeof value, bytes.size()));
  return value;
}

contents read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  contents found;
  found.header = read_as<file_header>(bytes);
  std::size_t at = sizeof(file_header);
  while (at + sizeof(record_header) <= bytes.size()) {
    const auto header = read_as<record_header>(bytes.substr(at));
    const std::size_t whole = sizeof header + (header.payload_bytes + 7U) / 8 * 8;
    if (at + whole > bytes.size()) break;
    found.records.push_back({header.type, bytes.substr(at + sizeof header, header.payload_bytes)});
    at += whole;
  }
  found.whole = at == bytes.size();
  return found;
}

class trace_file_test : public ::testing::Test {
 protected:
  [[nodiscard]] trace_file::options here() const { return {directory_, 1 << 20, 1}; }
  [[nodiscard]] fs::path path(pid_t pid, const std::string& more = "") const {
    return directory_ / ("misses-" + std::to_string(pid) + more + ".trace");
  }

  const scratch_folder folder_;
  const fs::path directory_ = folder_.path();
};

TEST_F(trace_file_test, RecordsComeBack) {
  {
    trace_file file(here());
    ASSERT_TRUE(file.open().ok());
    const std::array<std::uint64_t, 3> stack{1, 2, 3};
    EXPECT_EQ(file.stack(stack), 1U);
    EXPECT_EQ(file.stack(stack), 1U);
    EXPECT_EQ(file.stack(std::span(stack).first(2)), 2U);
    EXPECT_EQ(file.stack({}), 0U);
    EXPECT_EQ(file.python_stack("a.py:1 f\n"), 1U);
    EXPECT_EQ(file.python_stack("a.py:1 f\n"), 1U);
    EXPECT_EQ(file.python_stack(""), 0U);
    file.add(miss_record{7, 4096, 9, 1, 1, miss_kind::write, 1, 0});
    file.add_hint_site(5, 4, 3, "a file.c");
    file.add_end({8, 1, 0, 0, 0, 0});
  }
  const contents found = read(path(getpid()));
  EXPECT_EQ(found.header.magic, magic);
  EXPECT_EQ(found.header.pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_EQ(found.header.budget_bytes, 1U << 20);
  ASSERT_TRUE(found.whole);
  ASSERT_EQ(found.records.size(), 6U);
  EXPECT_EQ(found.records[0].payload.size(), sizeof(stack_record) + 24);
  EXPECT_EQ(read_as<stack_record>(found.records[1].payload).depth, 2U);
  EXPECT_EQ(found.records[2].payload.substr(sizeof(python_stack_record)), "a.py:1 f\n");
  EXPECT_EQ(read_as<miss_record>(found.records[3].payload).kind, miss_kind::write);
  EXPECT_EQ(found.records[4].payload.substr(sizeof(hint_site_record)), "a file.c");
  EXPECT_EQ(read_as<end_record>(found.records[5].payload).misses, 1U);
  struct stat status{};
  ASSERT_EQ(stat(path(getpid()).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST_F(trace_file_test, AProcessThatBecomesAnotherProgramHasTwoFiles) {
  trace_file first(here());
  trace_file second(here());
  ASSERT_TRUE(first.open().ok());
  ASSERT_TRUE(second.open().ok());
  EXPECT_TRUE(fs::exists(path(getpid())));
  EXPECT_TRUE(fs::exists(path(getpid(), "-2")));
}

TEST_F(trace_file_test, ManyThreadsWriteWholeRecords) {
  constexpr std::uint64_t misses_a_thread = 4'000;  // several buffers
  trace_file file(here());
  ASSERT_TRUE(file.open().ok());
  std::vector<std::thread> threads;
  for (std::uint32_t number = 1; number <= 3; ++number) {
    threads.emplace_back([&file, number] {
      for (std::uint64_t i = 0; i < misses_a_thread; ++i) {
        const std::array<std::uint64_t, 2> stack{number, i % 100};
        file.add(miss_record{i, i, number, file.stack(stack), 0, miss_kind::read, 0, 0});
      }
    });
  }
  for (std::thread& one : threads) one.join();
  file.flush();
  const contents found = read(path(getpid()));
  EXPECT_TRUE(found.whole);
  EXPECT_EQ(found.count(record_type::miss), 3 * misses_a_thread);
  EXPECT_EQ(found.count(record_type::stack), 300U);
}

TEST_F(trace_file_test, MapsNameThisProgram) {
  trace_file file(here());
  ASSERT_TRUE(file.open().ok());
  file.add_maps();
  file.flush();
  const contents found = read(path(getpid()));
  ASSERT_EQ(found.count(record_type::maps), 1U);
  EXPECT_NE(found.records[0].payload.find(fs::read_symlink("/proc/self/exe").string()), std::string::npos);
}

TEST_F(trace_file_test, AFullDiskEndsTheFileWithAWholeRecord) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit least{100'000, 100'000};  // the rest of a buffer does not fit
    setrlimit(RLIMIT_FSIZE, &least);
    trace_file file(here());
    if (!file.open()) _exit(1);
    for (std::uint64_t i = 0; i < 100; ++i) file.add(miss_record{i, i, 1, 0, 0, miss_kind::read, 0, 0});
    file.flush();
    for (std::uint64_t i = 0; i < 100'000; ++i) file.add(miss_record{i, i, 1, 0, 0, miss_kind::read, 0, 0});
    file.flush();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const contents found = read(path(child));
  EXPECT_TRUE(found.whole);
  EXPECT_EQ(found.count(record_type::miss), 100U);
}

TEST_F(trace_file_test, AChildHasAFileOfItsOwn) {
  trace_file file(here());
  ASSERT_TRUE(file.open().ok());
  const std::array<std::uint64_t, 1> stack{77};
  EXPECT_EQ(file.stack(stack), 1U);
  file.lock_for_fork();
  const pid_t child = fork();
  if (child == 0) {
    const bool resumed = file.resume_in_child().ok();
    const std::uint32_t number = file.stack(stack);
    file.flush();
    _exit(resumed && number == 1 ? 0 : 1);
  }
  file.unlock_after_fork();
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  file.flush();
  EXPECT_EQ(read(path(child)).count(record_type::stack), 1U);
  EXPECT_EQ(read(path(child)).header.pid, static_cast<std::uint32_t>(child));
  EXPECT_EQ(read(path(getpid())).count(record_type::stack), 1U);
}

TEST_F(trace_file_test, NoDirectoryIsAnError) {
  trace_file file({(directory_ / "not-there").string(), 1, 1});
  const result<void> opened = file.open();
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("not-there"), std::string::npos);
}

}  // namespace
}  // namespace far::trace
