#include "wire/secret_in_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include "wire/handshake.h"

namespace far::wire {
namespace {

const std::string first_token = "0123456789abcdef0123456789abcdef";
const std::string second_token = "fedcba9876543210fedcba9876543210";

class secret : public testing::Test {
 protected:
  ~secret() override { std::remove(path_.c_str()); }

  // As those do who replace files: another one under the same name.
  void put(const std::string& text, mode_t mode = 0600) {
    const std::string fresh = path_ + ".new";
    std::ofstream(fresh) << text << "\n";
    ASSERT_EQ(chmod(fresh.c_str(), mode), 0);
    ASSERT_EQ(std::rename(fresh.c_str(), path_.c_str()), 0);
  }

  const std::string path_ = testing::TempDir() + "farheap-secret-in-file-" + std::to_string(getpid());
};

TEST_F(secret, is_read_once_for_each_change_of_its_file) {
  put(first_token);
  secret_in_file watched(path_, read_token_file);
  std::optional<result<std::string>> got = watched.changed();
  ASSERT_TRUE(got && got->ok());
  EXPECT_EQ(got->value(), first_token);
  EXPECT_FALSE(watched.changed());
  put(second_token);
  got = watched.changed();
  ASSERT_TRUE(got && got->ok());
  EXPECT_EQ(got->value(), second_token);
  EXPECT_FALSE(watched.changed());
}

TEST_F(secret, a_file_that_cannot_be_read_is_told_once) {
  put(first_token);
  secret_in_file watched(path_, read_token_file);
  ASSERT_TRUE(watched.changed());
  put(second_token, 0644);
  const std::optional<result<std::string>> got = watched.changed();
  ASSERT_TRUE(got);
  EXPECT_FALSE(got->ok()) << "others may read it";
  EXPECT_FALSE(watched.changed());
  std::remove(path_.c_str());
  ASSERT_TRUE(watched.changed());
  EXPECT_FALSE(watched.changed());
  put(second_token);
  EXPECT_TRUE(watched.changed());
}

// The message says what to do, and that is enough.
TEST_F(secret, a_file_whose_rights_were_put_right_is_read) {
  put(first_token);
  secret_in_file watched(path_, read_token_file);
  ASSERT_TRUE(watched.changed());
  put(second_token, 0644);
  ASSERT_FALSE(watched.changed().value().ok());
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  const std::optional<result<std::string>> got = watched.changed();
  ASSERT_TRUE(got && got->ok());
  EXPECT_EQ(got->value(), second_token);
}

// Tools that copy files may keep their times.
TEST_F(secret, a_file_that_was_written_in_place_with_the_time_of_before_is_read) {
  put(first_token);
  secret_in_file watched(path_, read_token_file);
  ASSERT_TRUE(watched.changed());
  struct stat before = {};
  ASSERT_EQ(stat(path_.c_str(), &before), 0);
  std::fstream(path_, std::ios::in | std::ios::out) << second_token;
  const std::array<timespec, 2> times{before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, path_.c_str(), times.data(), 0), 0);
  const std::optional<result<std::string>> got = watched.changed();
  ASSERT_TRUE(got && got->ok());
  EXPECT_EQ(got->value(), second_token);
}

// Descriptors may be short for a moment.
TEST_F(secret, a_file_that_could_not_be_read_is_tried_again) {
  static int failures;
  failures = 2;
  put(first_token);
  secret_in_file watched(path_, [](const std::string& path) -> result<std::string> {
    if (failures > 0) return --failures, error{"no descriptor", EMFILE};
    return read_token_file(path);
  });
  ASSERT_FALSE(watched.changed().value().ok());
  EXPECT_FALSE(watched.changed()) << "it is told once";
  const std::optional<result<std::string>> got = watched.changed();
  ASSERT_TRUE(got && got->ok());
  EXPECT_EQ(got->value(), first_token);
  EXPECT_FALSE(watched.changed());
}

TEST_F(secret, none_is_read_where_there_is_no_file) {
  EXPECT_FALSE(secret_in_file("", read_token_file).changed());
}

}  // namespace
}  // namespace far::wire
