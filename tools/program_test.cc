#include "program.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/scratch_folder.h"

namespace far::tools {
namespace {

class program_test : public testing::Test {
 protected:
  std::string make(const std::string& name, const std::string& text, mode_t mode = 0755) {
    const std::string path = directory_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  static int code_of(const std::string& path) {
    const result<void> got = check_preloadable(path);
    return got.ok() ? 0 : got.error().code;
  }
  // This very test program, with its PT_INTERP renamed, so that it looks like a static program.
  std::string make_static() {
    std::ifstream self("/proc/self/exe", std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(self)), {});
    const auto read_number = [&bytes](std::size_t at, std::size_t size) {
      std::uint64_t value = 0;
      for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
      return value;
    };
    const std::size_t table = read_number(0x20, 8);
    const std::size_t entry = read_number(0x36, 2);
    const std::size_t count = read_number(0x38, 2);
    for (std::size_t i = 0; i < count; ++i) {
      if (read_number(table + i * entry, 4) == 3) bytes[table + i * entry] = 0;  // PT_INTERP becomes PT_NULL
    }
    return make("static", bytes);
  }

  const scratch_folder folder_;
  const std::string directory_ = folder_.path();
};

TEST_F(program_test, IsSearchedInPath) {
  make("first/other", "x");
  make("second/tool", "#!/bin/sh\n", 0644);
  const std::string right = make("third/tool", "#!/bin/sh\n");
  const std::string path = directory_ + "/first:" + directory_ + "/second:" + directory_ + "/third";
  EXPECT_EQ(find_program("tool", path.c_str()).value(), right);
  const std::string short_path = directory_ + "/first:" + directory_ + "/second";
  EXPECT_EQ(find_program("tool", short_path.c_str()).error().code, exit_not_executable);
  EXPECT_EQ(find_program("tool2", path.c_str()).error().code, exit_not_found);
  EXPECT_EQ(find_program("first", directory_.c_str()).error().code, exit_not_found) << "directories do not count";
  EXPECT_EQ(find_program("", path.c_str()).error().code, exit_usage);
}

TEST_F(program_test, ANameWithASlashIsAPath) {
  const std::string path = make("tool", "#!/bin/sh\n");
  EXPECT_EQ(find_program(path, "").value(), path);
  EXPECT_EQ(find_program(directory_ + "/none", "").error().code, exit_not_found);
  EXPECT_EQ(find_program(directory_, "").error().code, exit_not_executable);
  EXPECT_EQ(find_program(make("data", "x", 0644), "").error().code, exit_not_executable);
}

TEST_F(program_test, DynamicProgramsAndTheirScriptsPass) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  EXPECT_EQ(code_of(self), 0);
  EXPECT_EQ(code_of(make("a", "#! " + self + " -x\nbody\n")), 0);
  EXPECT_EQ(code_of(make("b", "#!" + directory_ + "/a")), 0);
}

TEST_F(program_test, StaticProgramsAndTheirScriptsAreRefused) {
  const std::string path = make_static();
  EXPECT_EQ(code_of(path), exit_failure);
  EXPECT_NE(check_preloadable(path).error().message.find("statically linked"), std::string::npos);
  EXPECT_EQ(code_of(make("script", "#!" + path + "\n")), exit_failure);
}

TEST_F(program_test, OtherFilesAreRefused) {
  EXPECT_EQ(code_of(make("text", "hello\n")), exit_not_executable);
  EXPECT_EQ(code_of(make("empty", "")), exit_not_executable);
  EXPECT_EQ(code_of(make("bare", "#!  \n")), exit_not_executable);
  EXPECT_EQ(code_of(make("lost", "#!/no/such/interpreter\n")), exit_not_executable);
  EXPECT_EQ(code_of(make("loop", "#!" + directory_ + "/loop\n")), exit_not_executable);
  EXPECT_EQ(code_of(make("stub", "\177ELF\001\001\001")), exit_failure);
  EXPECT_EQ(code_of(directory_ + "/none"), exit_not_found);
}

TEST_F(program_test, SetUidOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  const std::string path = make("suid", "");
  std::filesystem::copy_file("/proc/self/exe", path, std::filesystem::copy_options::overwrite_existing);
  ASSERT_EQ(chown(path.c_str(), 65534, 0), 0);
  ASSERT_EQ(chmod(path.c_str(), 04755), 0);
  EXPECT_EQ(code_of(path), exit_failure);
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  EXPECT_EQ(code_of(path), 0);
}

}  // namespace
}  // namespace far::tools
