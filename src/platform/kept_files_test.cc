#include "platform/kept_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace far::platform {
namespace {

int lowest_free_number() {
  const int lowest = dup(STDERR_FILENO);
  close(lowest);
  return lowest;
}

// The descriptor of this process that has the file; -1: none.
int descriptor_of(const std::string& path) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::filesystem::path target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && target == path) return std::stoi(entry.path().filename());
  }
  return -1;
}

std::string own_stat_file() {
  return "/proc/" + std::to_string(getpid()) + "/stat";
}

pid_t number_in_stat() {
  char text[512];
  return read_kept_text("/proc/self/stat", text) ? std::atoi(text) : 0;
}

TEST(kept_files, are_out_of_the_way_of_low_numbers) {
  const int lowest = lowest_free_number();
  ASSERT_EQ(number_in_stat(), getpid());
  const int kept = descriptor_of(own_stat_file());
  EXPECT_GT(kept, 512);
  EXPECT_EQ(lowest_free_number(), lowest);
  EXPECT_EQ(number_in_stat(), getpid());
  EXPECT_EQ(descriptor_of(own_stat_file()), kept);
}

TEST(kept_files, are_read_anew_each_time) {
  char before[4096];
  char after[4096];
  ASSERT_TRUE(read_kept_text("/proc/self/io", before));
  ASSERT_TRUE(read_kept_text("/proc/self/io", after));
  EXPECT_STRNE(before, after);  // it counts reads
  const std::optional<std::string> whole = read_whole_kept("/proc/self/status");
  ASSERT_TRUE(whole.has_value());
  EXPECT_TRUE(whole->starts_with("Name:"));
  EXPECT_TRUE(whole->ends_with("\n"));
}

TEST(kept_files, that_cannot_be_read) {
  char text[16] = "something";
  EXPECT_FALSE(read_kept_text("/proc/self/there-is-no-such-file", text));
  EXPECT_STREQ(text, "");
  EXPECT_FALSE(read_whole_kept("/proc/self/there-is-no-such-file").has_value());
}

TEST(kept_files, whose_number_the_program_has_taken_are_opened_again) {
  ASSERT_EQ(number_in_stat(), getpid());
  const int kept = descriptor_of(own_stat_file());
  ASSERT_GE(kept, 0);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(syscall(SYS_dup3, null, kept, O_CLOEXEC), kept);
  close(null);
  EXPECT_EQ(number_in_stat(), getpid());
  EXPECT_EQ(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(kept)), "/dev/null");
  EXPECT_NE(descriptor_of(own_stat_file()), kept);
  close(kept);
}

TEST(kept_files, of_a_child_are_its_own) {
  ASSERT_EQ(number_in_stat(), getpid());
  const pid_t child = fork();
  if (child == 0) {
    close_kept_files_in_child();
    const bool closed = descriptor_of("/proc/" + std::to_string(getppid()) + "/stat") == -1;
    _exit(closed && number_in_stat() == getpid() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace far::platform
