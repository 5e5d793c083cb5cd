#include "server/event_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

namespace far::server {
namespace {

constexpr std::int64_t moment_ms = 1'764'084'605'042;

TEST(event_log, a_line_of_text_has_the_words_alone) {
  EXPECT_EQ(event_line(log_format::text, "draining", log_level::info, {.peer = "10.0.0.7:1"}, moment_ms),
            "farheapd: draining\n");
}

TEST(event_log, a_line_of_json_has_time_severity_and_whom_it_concerns) {
  EXPECT_EQ(
      event_line(log_format::json, "silent: ended the connection", log_level::warning,
                 {.peer = "10.0.0.7:41234", .tenant = "alice", .session = "5f00ab12", .reason = "silent"}, moment_ms),
      "{\"time\":\"2025-11-25T15:30:05.042Z\",\"severity\":\"warning\",\"message\":\"silent: ended the connection\","
      "\"peer\":\"10.0.0.7:41234\",\"tenant\":\"alice\",\"session\":\"5f00ab12\",\"reason\":\"silent\"}\n");
  EXPECT_EQ(
      event_line(log_format::json, "a \"b\"\\\n\x01", log_level::debug, {}, 0),
      "{\"time\":\"1970-01-01T00:00:00.000Z\",\"severity\":\"debug\",\"message\":\"a \\\"b\\\"\\\\\\u000a\\u0001\"}\n");
}

TEST(event_log, a_long_line_is_cut_and_stays_json) {
  const std::string line = event_line(log_format::json, std::string(100'000, '"'), log_level::info, {}, 0);
  EXPECT_LE(line.size(), 4096u);
  EXPECT_TRUE(line.ends_with("\\\"\"}\n"));
  EXPECT_LE(event_line(log_format::text, std::string(100'000, 'x'), log_level::info, {}, 0).size(), 4096u);
}

// Standard error is a pipe that nobody reads, for a while.
class unread_log : public testing::Test {
 protected:
  unread_log() : before_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    EXPECT_GT(fcntl(ends_[1], F_SETPIPE_SZ, 4096), 0);
    EXPECT_EQ(dup2(ends_[1], STDERR_FILENO), STDERR_FILENO);
  }
  ~unread_log() override {
    dup2(before_, STDERR_FILENO);
    for (const int end : {before_, ends_[0], ends_[1]}) close(end);
  }
  std::string read_all() {
    std::array<char, 8192> text{};
    const ssize_t got = ::read(ends_[0], text.data(), text.size());
    return {text.data(), static_cast<std::size_t>(got > 0 ? got : 0)};
  }

  const int before_;
  std::array<int, 2> ends_{};
};

TEST_F(unread_log, loses_lines_and_stops_nobody) {
  for (int i = 0; i < 1000; ++i) log_event("line " + std::to_string(i) + std::string(100, '.'));
  const std::string first = read_all();
  EXPECT_TRUE(first.starts_with("farheapd: line 0"));
  EXPECT_EQ(first.find("line 999"), std::string::npos);
  log_event("the next one");
  const std::string next = read_all();
  EXPECT_TRUE(next.ends_with("lines were lost: standard error took no more\nfarheapd: the next one\n")) << next;
}

}  // namespace
}  // namespace far::server
