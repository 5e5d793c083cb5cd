#include "backend/file/store_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "base/units.h"
#include "tests/support/scratch_folder.h"

namespace far::backend {
namespace {

class store_file_test : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return directory_ + "/" + name; }
  static result<std::unique_ptr<store_file>> open(const std::string& path) {
    file_options chosen;
    chosen.path = path;
    return store_file::open(chosen);
  }
  static std::string message_of(const result<std::unique_ptr<store_file>>& opened) {
    return opened.ok() ? "opened" : opened.error().message;
  }

  const scratch_folder folder_{"/var/tmp"};
  const std::string directory_ = folder_.path();
};

// Sets a variable of the environment for one test.
class environment_variable {
 public:
  environment_variable(const char* name, const char* value) : name_(name) {
    if (const char* const old = std::getenv(name)) old_ = old;
    if (value == nullptr) {
      unsetenv(name);
    } else {
      setenv(name, value, 1);
    }
  }
  ~environment_variable() {
    if (old_.has_value()) {
      setenv(name_, old_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST_F(store_file_test, a_directory_gets_a_file_without_a_name) {
  const auto file = open(directory_);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
  struct stat status{};
  ASSERT_EQ(fstat(file.value()->descriptor(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0600u);
  EXPECT_EQ(status.st_nlink, 0u);
  EXPECT_NE(file.value()->describe().find("unlinked"), std::string::npos);
  EXPECT_EQ(file.value()->position_of(2), 2 * page_bytes);
}

TEST_F(store_file_test, the_descriptor_stays_out_of_the_way_and_is_not_inherited) {
  const auto file = open(directory_);
  EXPECT_GT(file.value()->descriptor(), 255);
  EXPECT_NE(fcntl(file.value()->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(store_file_test, the_default_directory_comes_from_the_environment) {
  const environment_variable first("FARHEAP_DIR", directory_.c_str());
  const environment_variable second("TMPDIR", "/nowhere");
  EXPECT_NE(open("").value()->describe().find(directory_), std::string::npos);
}

TEST_F(store_file_test, the_second_choice_is_the_directory_for_temporary_files) {
  const environment_variable first("FARHEAP_DIR", nullptr);
  const environment_variable second("TMPDIR", directory_.c_str());
  EXPECT_NE(open("").value()->describe().find(directory_), std::string::npos);
}

TEST_F(store_file_test, a_directory_that_is_set_but_unusable_is_an_error_that_names_the_variable) {
  const environment_variable first("FARHEAP_DIR", "/nowhere/at/all");
  const std::string message = message_of(open(""));
  EXPECT_NE(message.find("/nowhere/at/all"), std::string::npos) << message;
  EXPECT_NE(message.find("set FARHEAP_DIR"), std::string::npos) << message;
}

TEST_F(store_file_test, a_new_file_is_private_and_gives_its_space_back) {
  {
    const auto file = open(path("new"));
    ASSERT_TRUE(file.ok()) << file.error().message;
    struct stat status{};
    ASSERT_EQ(stat(path("new").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777u, 0600u);
    ASSERT_EQ(file.value()->reserve(0, 100), 0);
    EXPECT_GT(std::filesystem::file_size(path("new")), 100 * page_bytes);
    EXPECT_GE(file.value()->position_of(0), page_bytes) << "the first page says whose file it is";
  }
  EXPECT_LE(std::filesystem::file_size(path("new")), page_bytes);
}

TEST_F(store_file_test, an_empty_file_that_others_may_read_becomes_private) {
  std::ofstream(path("empty")).close();
  ASSERT_EQ(chmod(path("empty").c_str(), 0644), 0);
  const auto file = open(path("empty"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  struct stat status{};
  ASSERT_EQ(stat(path("empty").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0600u);
}

TEST_F(store_file_test, a_file_with_data_is_refused_and_kept) {
  std::ofstream(path("precious")) << "years of work";
  const std::string message = message_of(open(path("precious")));
  EXPECT_NE(message.find("holds data"), std::string::npos) << message;
  std::string left;
  std::getline(std::ifstream(path("precious")), left);
  EXPECT_EQ(left, "years of work");
}

TEST_F(store_file_test, an_empty_file_and_what_an_earlier_run_left_behind_are_taken) {
  std::ofstream(path("empty")).close();
  EXPECT_EQ(message_of(open(path("empty"))), "opened");
  // As after a crash: our mark, and old bytes behind it.
  std::ofstream(path("empty"), std::ios::app) << std::string(100'000, 'x');
  EXPECT_EQ(message_of(open(path("empty"))), "opened");
}

TEST_F(store_file_test, a_file_that_another_far_heap_uses_is_refused) {
  const auto first = open(path("shared"));
  ASSERT_TRUE(first.ok());
  ASSERT_EQ(first.value()->reserve(0, 10), 0);
  const std::string message = message_of(open(path("shared")));
  EXPECT_NE(message.find("in use by another far heap, of this process or of another"), std::string::npos) << message;
  EXPECT_GT(std::filesystem::file_size(path("shared")), 10 * page_bytes) << "untouched by the second";
}

TEST_F(store_file_test, what_is_no_store_is_refused) {
  EXPECT_NE(message_of(open("/dev/null")).find("neither a directory, a file nor a block device"), std::string::npos);
  EXPECT_NE(message_of(open("/nowhere/file")).find("cannot be created"), std::string::npos);
}

TEST_F(store_file_test, direct_transfers_can_be_switched_off) {
  file_options chosen;
  chosen.path = directory_;
  chosen.direct = false;
  const auto file = store_file::open(chosen).value();
  EXPECT_FALSE(file->is_direct());
  EXPECT_NE(file->describe().find("page cache"), std::string::npos);
  EXPECT_TRUE(file->is_aligned(17, 3, nullptr)) << "the page cache takes any range";
}

TEST_F(store_file_test, a_limit_on_file_sizes_limits_the_capacity) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = mib;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto file = open(directory_);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file.value()->capacity_slots(), mib / page_bytes);
  EXPECT_EQ(file.value()->reserve(0, mib / page_bytes), 0);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
}

TEST_F(store_file_test, a_limit_on_file_sizes_that_comes_later_makes_it_full) {
  const auto file = open(directory_);
  ASSERT_TRUE(file.ok());
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = mib;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);  // what is written beyond it kills the process
  EXPECT_EQ(file.value()->reserve(0, mib / page_bytes), 0);
  EXPECT_TRUE(file.value()->may_write_up_to(mib));
  EXPECT_EQ(file.value()->reserve(1, mib / page_bytes), ENOSPC);
  EXPECT_FALSE(file.value()->may_write_up_to(mib + 1));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(file.value()->reserve(1, mib / page_bytes), 0);
}

TEST_F(store_file_test, capacity_is_unlimited_unless_chosen) {
  EXPECT_EQ(open(directory_).value()->capacity_slots(), std::numeric_limits<std::uint64_t>::max());
  file_options chosen;
  chosen.path = directory_;
  chosen.capacity_bytes = 10 * page_bytes + 5;
  EXPECT_EQ(store_file::open(chosen).value()->capacity_slots(), 10u);
}

// A loop device for one test; `path` is empty where none can be made.
class loop_device {
 public:
  explicit loop_device(const std::string& file) {
    std::ofstream(file).close();
    std::filesystem::resize_file(file, mib);
    const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    const int backing = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    const int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
    if (number >= 0) {
      path = "/dev/loop" + std::to_string(number);
      device_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    }
    if (device_ < 0 || ioctl(device_, LOOP_SET_FD, backing) != 0) {
      why_not = std::strerror(errno);
      path.clear();
    }
    if (backing >= 0) close(backing);
    if (control >= 0) close(control);
  }
  ~loop_device() {
    if (!path.empty()) ioctl(device_, LOOP_CLR_FD, 0);
    if (device_ >= 0) close(device_);
  }

  std::string path;
  std::string why_not;

 private:
  int device_ = -1;
};

// Such a file system takes a write long before it looks for room. It is unmounted at once, and lasts as long as its
// file.
TEST_F(store_file_test, a_write_without_reserved_space_waits_for_the_device) {
  const std::string place = path("plain");
  std::filesystem::create_directory(place);
  if (mount("none", place.c_str(), "ramfs", 0, nullptr) != 0)
    GTEST_SKIP() << "no ramfs can be mounted here: " << std::strerror(errno);
  const auto file = open(place);
  umount2(place.c_str(), MNT_DETACH);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file.value()->reserve(0, 100), 0);
  EXPECT_EQ(file.value()->write_flags(), RWF_DSYNC);
  const auto other = open(directory_);
  ASSERT_TRUE(other.ok()) << other.error().message;
  ASSERT_EQ(other.value()->reserve(0, 100), 0);
  EXPECT_EQ(other.value()->write_flags(), 0);
}

TEST_F(store_file_test, a_block_device_is_used_whole_and_alone) {
  const loop_device device(path("backing"));
  if (device.path.empty()) GTEST_SKIP() << "no loop device can be made here: " << device.why_not;
  const auto file = open(device.path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file.value()->capacity_slots(), mib / page_bytes);
  EXPECT_EQ(file.value()->position_of(0), 0u);
  EXPECT_NE(message_of(open(device.path)).find("otherwise in use"), std::string::npos);
  file_options chosen;
  chosen.path = device.path;
  chosen.capacity_bytes = 2 * mib;
  EXPECT_FALSE(store_file::open(chosen).ok());
}

}  // namespace
}  // namespace far::backend
