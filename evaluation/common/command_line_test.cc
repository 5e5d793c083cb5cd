#include "common/command_line.h"

#include <gtest/gtest.h>

#include <array>

namespace evaluation {
namespace {

struct options {
  double share = 0.5;
  unsigned threads = 2;
  std::uint16_t port = 80;
  std::size_t bytes = std::size_t{64} << 20;
  std::size_t odd_bytes = 1000;
  std::string file;
  std::string job = "words";
  std::uint64_t seed = 1;
  bool json = false;
};

struct parsed {
  options found;
  std::optional<int> status;
  std::string said;  // on both streams
};

parsed parse(std::vector<const char*> arguments) {
  parsed all;
  command_line line("A program.");
  line.add_number("--share", all.found.share, "of them", 0, 1);
  line.add_number("--threads", all.found.threads, "of the program", 1, 8);
  line.add_number("--port", all.found.port, "of the server", 0, 65535);
  line.add_size("--bytes", all.found.bytes, "of memory", std::size_t{1} << 40);
  line.add_size("--odd-bytes", all.found.odd_bytes, "of other memory", std::size_t{1} << 40);
  line.add_text("--file", all.found.file, "to read");
  line.add_choice("--job", all.found.job, "to do", {"words", "visitors"});
  line.add_seed(all.found.seed, "of the data");
  line.add_flag("--json", all.found.json, "one JSON object");
  line.exclude("--file", {"--seed", "--bytes"});
  arguments.insert(arguments.begin(), "program");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  all.status = line.parse(static_cast<int>(arguments.size()), arguments.data());
  all.said = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
  return all;
}

TEST(command_line, sets_the_variables) {
  const parsed all = parse({"--share", "0.25", "--threads=8", "--port", "65535", "--bytes", "3M", "--job", "visitors",
                            "--seed", "18446744073709551615", "--json"});
  EXPECT_FALSE(all.status) << all.said;
  EXPECT_EQ(all.found.share, 0.25);
  EXPECT_EQ(all.found.threads, 8u);
  EXPECT_EQ(all.found.port, 65535);
  EXPECT_EQ(all.found.bytes, std::size_t{3} << 20);
  EXPECT_EQ(all.found.job, "visitors");
  EXPECT_EQ(all.found.seed, 18446744073709551615u);
  EXPECT_TRUE(all.found.json);
}

TEST(command_line, leaves_what_is_not_given) {
  const parsed all = parse({});
  EXPECT_FALSE(all.status) << all.said;
  EXPECT_EQ(all.found.bytes, std::size_t{64} << 20);
  EXPECT_EQ(all.found.file, "");
}

TEST(command_line, refuses_what_is_wrong_and_names_it) {
  for (const auto& wrong : std::to_array<std::vector<const char*>>({{"--threads", "0"},
                                                                    {"--threads", "9"},
                                                                    {"--share", "1.5"},
                                                                    {"--port", "65536"},
                                                                    {"--bytes", "0"},
                                                                    {"--bytes", "2T"},
                                                                    {"--bytes", "many"},
                                                                    {"--job", "letters"},
                                                                    {"--seed", "one"},
                                                                    {"--other"},
                                                                    {"--file", "x", "--seed", "2"},
                                                                    {"--file", "x", "--bytes", "1M"}})) {
    const parsed all = parse(wrong);
    EXPECT_GT(all.status.value_or(0), 0) << wrong[0];
    EXPECT_NE(all.said.find(wrong[0]), std::string::npos) << all.said;
  }
}

TEST(command_line, help_names_options_and_their_defaults) {
  const parsed all = parse({"--help"});
  EXPECT_EQ(all.status, 0);
  for (const char* const part : {"A program.", "--share", "0.5", "=64M", "=1000", "words", "of the data"}) {
    EXPECT_NE(all.said.find(part), std::string::npos) << part << " in " << all.said;
  }
}

}  // namespace
}  // namespace evaluation
