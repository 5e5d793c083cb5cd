#include "backend/file/file_backend.h"

#include <gtest/gtest.h>
#include <linux/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "backend/file/ring_channel.h"
#include "base/log.h"
#include "base/units.h"

namespace far::backend {
namespace {

struct page {
  alignas(page_bytes) std::array<std::byte, page_bytes> bytes;
};

void run(channel& queue, std::span<const request> batch, std::span<int> codes) {
  std::size_t completed = 0;
  for (std::size_t submitted = 0; completed < batch.size();) {
    submitted += queue.submit(batch.subspan(submitted));
    std::array<completion, 16> done;
    const std::size_t count = queue.poll(done);
    for (const completion& one : std::span(done).first(count)) codes[one.cookie] = one.error_code;
    completed += count;
    if (count == 0) queue.wait(1'000'000'000);
  }
}

// `op` on every slot of [first, first + pages.size()), slot i with pages[i]; returns the error codes.
std::vector<int> transfer(channel& queue, operation op, slot_id first, std::vector<page>& pages) {
  std::vector<request> batch;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    batch.push_back({op, first + i, 0, page_bytes, pages[i].bytes.data(), i});
  }
  std::vector<int> codes(pages.size(), -1);
  run(queue, batch, codes);
  return codes;
}

std::vector<page> pages_with_content(std::size_t count, unsigned generation) {
  std::vector<page> pages(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t at = 0; at < page_bytes; ++at) {
      pages[i].bytes[at] = static_cast<std::byte>(i * 31 + at * 7 + at / 256 + generation);
    }
  }
  return pages;
}

bool same(const std::vector<page>& a, const std::vector<page>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(page)) == 0;
}

std::vector<int> all(std::size_t count, int code) {
  return std::vector<int>(count, code);
}

std::unique_ptr<backend> make(const std::string& path, bool use_io_uring = true) {
  file_options chosen;
  chosen.path = path;
  chosen.use_io_uring = use_io_uring;
  auto opened = file_backend::create(chosen);
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
  return std::move(opened).value();
}

TEST(file_backend, says_how_it_moves_bytes) {
  EXPECT_NE(make("/var/tmp", false)->describe().find("through pread and pwrite"), std::string::npos);
  if (!ring_channel::is_available()) GTEST_SKIP() << "io_uring is not available: " << std::strerror(errno);
  EXPECT_NE(make("/var/tmp")->describe().find("through io_uring"), std::string::npos);
}

// A file system of 1 MiB in RAM that no path leads to: it goes when its descriptor is closed.
class small_file_system {
 public:
  small_file_system() {
    const auto context = static_cast<int>(syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC));
    if (context < 0) {
      error_code_ = errno;
      return;
    }
    if (syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "size", "1m", 0) == 0 &&
        syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0) {
      mount_ = static_cast<int>(syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0));
    }
    if (mount_ < 0) error_code_ = errno;
    close(context);
  }
  ~small_file_system() {
    if (mount_ >= 0) close(mount_);
  }
  [[nodiscard]] bool exists() const { return mount_ >= 0; }
  [[nodiscard]] const char* why_not() const { return std::strerror(error_code_); }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(mount_); }

 private:
  int mount_ = -1;
  int error_code_ = 0;
};

TEST(file_backend, a_full_disk_refuses_slots_and_loses_nothing) {
  for (const bool use_io_uring : {true, false}) {
    const small_file_system disk;
    if (!disk.exists()) GTEST_SKIP() << "no small file system can be mounted here: " << disk.why_not();
    const auto tested = make(disk.path(), use_io_uring);
    const auto queue = tested->open_channel(32).value();
    std::vector<slot_id> slots;
    result<slot_id> next = tested->allocate(1);
    for (; next.ok(); next = tested->allocate(1)) slots.push_back(next.value());
    EXPECT_EQ(next.error().code, ENOSPC);
    EXPECT_EQ(slots.size(), mib / page_bytes) << "all of the disk is used";
    EXPECT_EQ(tested->allocate(64).error().code, ENOSPC);

    std::vector<page> out = pages_with_content(slots.size(), 3);
    std::vector<page> in(slots.size());
    EXPECT_EQ(transfer(*queue, operation::write, 0, out), all(slots.size(), 0)) << "the space had been reserved";
    EXPECT_EQ(transfer(*queue, operation::read, 0, in), all(slots.size(), 0));
    EXPECT_TRUE(same(in, out));

    tested->free(10, 20);
    EXPECT_EQ(tested->allocate(20).value(), 10u);
  }
}

// Closes, as a careless program would, every descriptor of this process that is an io_uring.
void close_rings() {
  std::vector<int> rings;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry, gone).string() == "anon_inode:[io_uring]") {
      rings.push_back(std::stoi(entry.path().filename()));
    }
  }
  for (const int ring : rings) close(ring);
}

TEST(file_backend, a_ring_that_the_program_closed_fails_its_transfers) {
  if (!ring_channel::is_available()) GTEST_SKIP() << "io_uring is not available: " << std::strerror(errno);
  const auto tested = make("/var/tmp");
  const auto queue = tested->open_channel(8).value();
  const slot_id first = tested->allocate(20).value();
  std::vector<page> pages(20);
  ASSERT_EQ(transfer(*queue, operation::write, first, pages), all(20, 0));
  close_rings();
  set_log_level(log_level::error);
  EXPECT_EQ(transfer(*queue, operation::write, first, pages), all(20, EBADF));
  EXPECT_EQ(queue->in_flight(), 0u);
  set_log_level(log_level::info);
}

TEST(file_backend, pages_that_somebody_cut_off_are_errors_and_their_neighbours_are_not) {
  const std::string path = "/var/tmp/farheap-test-" + std::to_string(getpid());
  for (const bool use_io_uring : {true, false}) {
    const auto tested = make(path, use_io_uring);
    const auto queue = tested->open_channel(32).value();
    const slot_id first = tested->allocate(16).value();
    std::vector<page> out = pages_with_content(16, 5);
    std::vector<page> in(16);
    ASSERT_EQ(transfer(*queue, operation::write, first, out), all(16, 0));
    // The mark of the file is one page, so this leaves 6 slots.
    std::filesystem::resize_file(path, 7 * page_bytes);
    std::vector<int> expected = all(16, EIO);
    std::fill_n(expected.begin(), 6, 0);
    EXPECT_EQ(transfer(*queue, operation::read, first, in), expected);
    EXPECT_EQ(std::memcmp(in.data(), out.data(), 6 * page_bytes), 0);
  }
  std::filesystem::remove(path);
}

// The polling thread may wait inside the kernel next, and a ring needs its submitter.
TEST(file_backend, what_a_poll_finds_to_be_submitted_is_left) {
  if (!ring_channel::is_available()) GTEST_SKIP() << "io_uring is not available: " << std::strerror(errno);
  const std::string path = "/var/tmp/farheap-test-" + std::to_string(getpid());
  const auto tested = make(path);
  const auto queue = tested->open_channel(16).value();
  ASSERT_EQ(tested->allocate(16).value(), 0u);
  std::filesystem::resize_file(path, 7 * page_bytes);
  std::vector<page> in(16);
  std::vector<request> batch;
  for (std::size_t i = 0; i < 16; ++i) batch.push_back({operation::read, i, 0, page_bytes, in[i].bytes.data(), i});
  ASSERT_EQ(queue->submit(batch), 16u);
  EXPECT_FALSE(queue->has_left());
  std::array<completion, 16> done;
  queue->wait(20'000'000'000);
  // Pages behind the end of the file are asked for again, one by one.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue->poll(done), 0u);
  EXPECT_TRUE(queue->has_left());
  std::size_t count = 0;
  for (int rounds = 0; count < 16 && rounds < 10; ++rounds) {
    queue->submit_left();
    EXPECT_FALSE(queue->has_left());
    queue->wait(20'000'000'000);
    count += queue->poll(std::span(done).subspan(count));
  }
  EXPECT_EQ(count, 16u);
  std::filesystem::remove(path);
}

bool maps_a_ring() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("io_uring") != std::string::npos) return true;
  }
  return false;
}

TEST(file_backend, a_forked_child_may_destroy_it_without_harm) {
  const std::string path = "/var/tmp/farheap-test-" + std::to_string(getpid());
  auto tested = make(path);
  auto queue = tested->open_channel(32).value();
  const slot_id first = tested->allocate(16).value();
  std::vector<page> out = pages_with_content(16, 7);
  std::vector<page> in(16);
  ASSERT_EQ(transfer(*queue, operation::write, first, out), all(16, 0));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool shares_ring = maps_a_ring();
    queue.reset();
    tested.reset();
    _exit(shares_ring ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(transfer(*queue, operation::read, first, in), all(16, 0));
  EXPECT_TRUE(same(in, out));
  queue.reset();
  tested.reset();
  std::filesystem::remove(path);
}

TEST(file_backend, an_allocation_of_more_than_a_growth_step_is_one_run) {
  const auto tested = make("/var/tmp");
  const slot_id small = tested->allocate(5).value();
  const slot_id large = tested->allocate(40'000).value();
  EXPECT_EQ(large, small + 5);
  EXPECT_EQ(tested->report().used_slots, 40'005u);
}

}  // namespace
}  // namespace far::backend
