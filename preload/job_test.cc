#include "preload/job.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/units.h"
#include "pager/pager.h"
#include "tests/support/scratch_folder.h"

namespace far::preload {
namespace {
bool gives_up_at_signals = false;
void (*when_memory_is_read)() = nullptr;
}  // namespace
}  // namespace far::preload

// In place of the C library's. As the tmpfs of older kernels, it can be interrupted: by a timer of the program's that
// is fast enough, each time.
int posix_fallocate(int file, off_t offset, off_t bytes) {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  if (far::preload::gives_up_at_signals && sigismember(&blocked, SIGALRM) == 0) return EINTR;
  if (syscall(SYS_fallocate, file, 0, offset, bytes) == 0) return 0;
  return ftruncate(file, offset + bytes) == 0 ? 0 : errno;
}

// In place of the C library's: another process may act between a look at the terms and a look at the machine.
ssize_t pread(int file, void* to, size_t bytes, off_t offset) {
  if (far::preload::when_memory_is_read != nullptr) {
    std::error_code unknown;
    const std::string path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), unknown).string();
    if (path == "/proc/meminfo") far::preload::when_memory_is_read();
  }
  return syscall(SYS_pread64, file, to, bytes, offset);
}

namespace far::preload {
namespace {

constexpr std::uint64_t budget_bytes = 128 * mib;

class job_test : public testing::Test {
 protected:
  void TearDown() override {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }

  [[nodiscard]] std::unique_ptr<job> join(bool shares = true) const {
    result<job_mapping> opened = job_mapping::open(name_, {{budget_bytes}, shares});
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    if (!opened) return nullptr;
    result<std::unique_ptr<job>> joined = job::join(std::move(opened).value(), name_);
    EXPECT_TRUE(joined.ok()) << joined.error().message;
    return joined ? std::move(joined).value() : nullptr;
  }

  // A process that joins, tells that it counted `misses`, does `more`, says so by a byte, and sleeps.
  pid_t start_member(std::uint64_t misses, const std::function<void(job&)>& more = {}) {
    return start_process([misses, &more](job& mine) {
      engine::statistics counted;
      counted.misses = misses;
      counted.local_bytes = 8 * mib;
      counted.budget_bytes = mine.ask();
      mine.tell(counted, {1000, 2000, 3000});
      if (more) more(mine);
    });
  }

  // A process that joins, does `first`, says so by a byte, does `then`, and sleeps.
  pid_t start_process(const std::function<void(job&)>& first, const std::function<void(job&)>& then = {}) {
    int done_pipe[2];
    EXPECT_EQ(pipe(done_pipe), 0);
    const pid_t child = fork();
    if (child == 0) {
      const std::unique_ptr<job> mine = join();
      first(*mine);
      EXPECT_EQ(write(done_pipe[1], "x", 1), 1);
      if (then) then(*mine);
      pause();
      _exit(0);
    }
    children_.push_back(child);
    char byte = 0;
    EXPECT_EQ(read(done_pipe[0], &byte, 1), 1);
    close(done_pipe[0]);
    close(done_pipe[1]);
    return child;
  }

  const scratch_folder folder_;
  const job_name name_ = {folder_.path() + "/farheap-job-1", {7, 8}};
  std::vector<pid_t> children_;
};

TEST_F(job_test, SignalsDoNotKeepItFromBeingFounded) {
  gives_up_at_signals = true;
  const result<job_mapping> opened = job_mapping::open(name_, {{budget_bytes}, true});
  gives_up_at_signals = false;
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  sigset_t blocked;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &blocked), 0);
  EXPECT_EQ(sigismember(&blocked, SIGALRM), 0) << "they are let in again";
}

TEST_F(job_test, ALimitOnFileSizesIsAnErrorAndDoesNotKill) {
  const auto exit_code_of = [this](rlim_t limit_bytes, int expected) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit limit{.rlim_cur = limit_bytes, .rlim_max = RLIM_INFINITY};
      if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
      const result<job_mapping> opened = job_mapping::open(name_, {{budget_bytes}, true});
      _exit((opened ? 0 : opened.error().code) == expected ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  };
  EXPECT_EQ(exit_code_of(4096, EFBIG), 0);
  EXPECT_NE(access(name_.path.c_str(), F_OK), 0) << "no file stays behind";
  const std::unique_ptr<job> founder = join();
  EXPECT_EQ(exit_code_of(4096, 0), 0) << "the file has its size already";
}

TEST_F(job_test, NamesAreReadAsTheyAreWritten) {
  const job_name name{"/dev/shm/farheap-job-12", {0x0123456789abcdef, 0xf}};
  EXPECT_EQ(name.text(), "/dev/shm/farheap-job-12#0123456789abcdef000000000000000f");
  const result<job_name> read = parse_job_name(name.text());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().path, name.path);
  EXPECT_EQ(read.value().secret, name.secret);
  for (const char* wrong :
       {"", "x", "/x", "/x#12", "x#0123456789abcdef000000000000000f", "/x#0123456789abcdef00000000000000zz"}) {
    EXPECT_FALSE(parse_job_name(wrong).ok()) << wrong;
  }
}

TEST_F(job_test, TheFileIsPrivateAndGoesWithTheLast) {
  const std::unique_ptr<job> only = join();
  ASSERT_NE(only, nullptr);
  struct stat status{};
  ASSERT_EQ(stat(name_.path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0600u);
  EXPECT_EQ(only->ask(), budget_bytes);
  only->leave();
  EXPECT_NE(access(name_.path.c_str(), F_OK), 0);
}

TEST_F(job_test, TheFileStaysWhileOthersRun) {
  const std::unique_ptr<job> first = join();
  start_member(1);
  first->leave();
  EXPECT_EQ(access(name_.path.c_str(), F_OK), 0);
}

TEST_F(job_test, WhoIsKilledIsNoticedAndStaysInTheSums) {
  const std::unique_ptr<job> mine = join();
  const pid_t other = start_member(70);
  engine::statistics counted;
  counted.misses = 5;
  mine->tell(counted, {});
  EXPECT_LT(mine->ask(), budget_bytes) << "the other has a share";
  EXPECT_EQ(totals_of(mine->region()).running, 2u);
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  EXPECT_EQ(mine->ask(), budget_bytes) << "its share is free";
  const job_totals all = totals_of(mine->region());
  EXPECT_EQ(all.running, 1u);
  EXPECT_EQ(all.processes, 2u);
  EXPECT_EQ(all.counted.misses, 75u);
  EXPECT_EQ(all.counted.local_bytes, 0u) << "who has ended holds nothing";
  EXPECT_EQ(all.used.user_ns, 1000u);
}

TEST_F(job_test, AStrangerIsRefused) {
  const std::unique_ptr<job> mine = join();
  job_name wrong = name_;
  wrong.secret[1] ^= 1;
  const result<job_mapping> opened = job_mapping::open(wrong, {{budget_bytes}, true});
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, EPERM);
  std::filesystem::permissions(name_.path, std::filesystem::perms::others_read, std::filesystem::perm_options::add);
  EXPECT_FALSE(job_mapping::open(name_, {{budget_bytes}, true}).ok()) << "a file that others can read is not ours";
}

TEST_F(job_test, AProcessThatCallsExecGoesOnWithItsSlot) {
  const pid_t child = fork();
  if (child == 0) {
    engine::statistics counted;
    counted.misses = 10;
    counted.peak_local_bytes = 9 * mib;
    {
      const std::unique_ptr<job> before = join();
      before->tell(counted, {});
    }  // closes the descriptor, as exec does
    const std::unique_ptr<job> after = join();
    counted.misses = 7;
    counted.peak_local_bytes = 2 * mib;
    after->tell(counted, {});
    const job_totals all = totals_of(after->region());
    const bool right = all.processes == 1 && all.counted.misses == 17 && all.counted.peak_local_bytes == 9 * mib;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(job_test, TheFileStaysForAProcessThatIsBecomingAnotherProgram) {
  std::unique_ptr<job> mine = join();
  int said[2];
  ASSERT_EQ(pipe(said), 0);
  mine->resize(32 * mib);
  const pid_t other = fork();
  if (other == 0) {
    const std::unique_ptr<job> beside = join();
    if (write(said[1], "x", 1) != 1) _exit(1);
    while (beside->ask() < 32 * mib) usleep(1000);  // until the first one is lost
    beside->leave();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(said[0], &byte, 1), 1) << "it has joined";
  mine.reset();  // closes the descriptor, as exec does
  int status = -1;
  waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(access(name_.path.c_str(), F_OK), 0);
  remove_abandoned_job(name_.path, -1);
  EXPECT_EQ(access(name_.path.c_str(), F_OK), 0) << "nor does anybody else remove it";
  const std::unique_ptr<job> after = join();
  EXPECT_EQ(after->ask(), 32 * mib);
  EXPECT_EQ(totals_of(after->region()).processes, 2u);
  after->leave();
  EXPECT_NE(access(name_.path.c_str(), F_OK), 0);
}

TEST_F(job_test, TheFileStaysForAChildThatHasNotJoinedYet) {
  const std::unique_ptr<job> mine = join();
  mine->resize(32 * mib);
  int left[2];
  ASSERT_EQ(pipe(left), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    if (read(left[0], &byte, 1) != 1) _exit(1);
    const std::unique_ptr<job> itself = join();  // after an exec
    const bool right = itself->ask() == 32 * mib;
    itself->leave();
    _exit(right ? 0 : 1);
  }
  mine->leave();
  EXPECT_EQ(access(name_.path.c_str(), F_OK), 0);
  EXPECT_EQ(write(left[1], "x", 1), 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_NE(access(name_.path.c_str(), F_OK), 0);
}

// Where nobody knew of the child, or a later `farheap run` could not.
TEST_F(job_test, AChildFoundsItsJobAgainOnTheSameTerms) {
  result<job_mapping> opened = job_mapping::open(name_, {{budget_bytes, true}, true});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const result<std::unique_ptr<job>> mine = job::join(std::move(opened).value(), name_);
  ASSERT_TRUE(mine.ok()) << mine.error().message;
  const pid_t child = fork();
  if (child == 0) {
    job& itself = *mine.value();
    itself.forget_parent();
    if (unlink(name_.path.c_str()) != 0 || !itself.join_as_child({}, {}).ok()) _exit(2);
    const job_region& region = itself.region();
    _exit(region.budget.load().automatic && region.budget.load().bytes == budget_bytes && itself.shares() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(job_test, TheFileDoesNotStayForWhoWasKilled) {
  const std::unique_ptr<job> mine = join();
  const pid_t other = start_member(1);
  kill(other, SIGKILL);
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(other), &ended, WEXITED | WNOWAIT), 0) << "it stays a zombie";
  mine->leave();
  EXPECT_NE(access(name_.path.c_str(), F_OK), 0);
}

TEST_F(job_test, TheFileOfKilledProcessesIsRemovedLater) {
  const pid_t only = start_member(1);
  remove_abandoned_job(name_.path, -1);
  EXPECT_EQ(access(name_.path.c_str(), F_OK), 0);
  kill(only, SIGKILL);
  waitpid(only, nullptr, 0);
  remove_abandoned_job(name_.path, 1000);
  EXPECT_EQ(access(name_.path.c_str(), F_OK), 0) << "it is not so old";
  remove_abandoned_job(name_.path, -1);
  EXPECT_NE(access(name_.path.c_str(), F_OK), 0);
}

TEST_F(job_test, AChildIsNotItsParent) {
  const std::unique_ptr<job> mine = join();
  engine::statistics counted;
  counted.misses = 3;
  mine->tell(counted, {});
  const pid_t child = fork();
  if (child == 0) {
    counted.misses = 1000;
    mine->tell(counted, {});
    mine->leave();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(access(name_.path.c_str(), F_OK), 0);
  EXPECT_EQ(totals_of(mine->region()).counted.misses, 3u);
  EXPECT_EQ(totals_of(mine->region()).running, 1u);
}

TEST_F(job_test, AChildTellsAtItsEndWhatItCountedItself) {
  const std::unique_ptr<job> mine = join();
  engine::statistics at_fork;
  at_fork.misses = 100;
  at_fork.peak_local_bytes = 50 * mib;
  mine->tell(at_fork, {});
  const pid_t child = fork();
  if (child == 0) {
    engine::statistics counted = at_fork;
    counted.misses = 104;
    mine->record_child(difference(at_fork, counted), {5, 6, 7});
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(access(name_.path.c_str(), F_OK), 0);
  const job_totals all = totals_of(mine->region());
  EXPECT_EQ(all.processes, 2u);
  EXPECT_EQ(all.running, 1u);
  EXPECT_EQ(all.counted.misses, 104u);
  EXPECT_EQ(all.used.user_ns, 5u);
  EXPECT_EQ(mine->ask(), budget_bytes);
}

TEST_F(job_test, ADescriptorThatTheProgramClosedIsOpenedAgain) {
  const std::unique_ptr<job> mine = join();
  start_member(1);
  engine::statistics counted;
  counted.misses = 4;
  counted.budget_bytes = mine->ask();
  mine->tell(counted, {});
  ASSERT_EQ(syscall(SYS_close, mine->descriptor()), 0);
  {
    // Somebody else takes it for dead meanwhile.
    const pid_t third = start_member(2);
    EXPECT_EQ(totals_of(mine->region()).running, 2u);
    kill(third, SIGKILL);
  }
  counted.misses = 6;
  EXPECT_GT(mine->exchange(counted, {}).value_or(0), 0u);
  mine->tell(counted, {});
  const job_totals all = totals_of(mine->region());
  EXPECT_EQ(all.counted.misses, 6u + 1u + 2u) << "nothing is counted twice";
  EXPECT_TRUE(mine->descriptor() >= 0);
}

TEST_F(job_test, ABudgetForEach) {
  const std::unique_ptr<job> mine = join(false);
  start_member(1);
  engine::statistics counted;
  counted.budget_bytes = budget_bytes;
  EXPECT_EQ(mine->exchange(counted, {}), std::nullopt);
  EXPECT_FALSE(mine->shares());
}

// It starts with that share, and tells of it only a moment later.
TEST_F(job_test, TheFirstShareOfANewcomerIsNotGrantedToOthers) {
  start_process([](job& mine) { EXPECT_EQ(mine.ask_as_newcomer(), budget_bytes); });
  const std::unique_ptr<job> mine = join();
  EXPECT_EQ(mine->ask_as_newcomer(), pager::minimum_budget_bytes);
  EXPECT_EQ(mine->ask_as_newcomer(), pager::minimum_budget_bytes) << "nobody has come down";
}

TEST_F(job_test, ANewcomerSeesWhoComesDownForIt) {
  constexpr std::uint64_t minimum = pager::minimum_budget_bytes;
  engine::statistics counted;
  counted.local_bytes = budget_bytes;
  const pid_t other = start_process(
      [&counted](job& itself) {
        counted.budget_bytes = itself.ask_as_newcomer();
        itself.tell(counted, {});
      },
      [&counted](job& itself) {
        while (true) {
          usleep(1000);
          counted.budget_bytes = itself.exchange(counted, {}).value_or(counted.budget_bytes);
          // Its evictor is slower than it learns.
          counted.local_bytes = std::max(counted.local_bytes - mib / 4, counted.budget_bytes);
        }
      });
  const std::unique_ptr<job> mine = join();
  static_cast<void>(mine->ask_as_newcomer());
  std::array<pid_t, 4> room{};
  coming_down waits_for = mine->shrunk(room);
  ASSERT_EQ(waits_for.processes, 1u);
  EXPECT_EQ(room[0], other);
  EXPECT_GT(waits_for.excess_bytes, 0u);
  EXPECT_LE(waits_for.excess_bytes, minimum) << "more than that this process may not fill";
  for (std::uint64_t before_bytes = minimum; waits_for.excess_bytes > 0; before_bytes = waits_for.excess_bytes) {
    ASSERT_LE(waits_for.excess_bytes, before_bytes);
    usleep(1000);
    static_cast<void>(mine->ask_as_newcomer());
    waits_for = mine->shrunk(room);
  }
  EXPECT_EQ(mine->region().slots[0].pid.load(), other);
  EXPECT_LE(totals_of(mine->region()).counted.local_bytes, mine->region().slots[0].granted_bytes.load());
}

TEST_F(job_test, ResizeReachesAll) {
  const std::unique_ptr<job> mine = join();
  start_member(1);
  mine->resize(32 * mib);
  EXPECT_EQ(totals_of(mine->region()).counted.budget_bytes, 32 * mib);
  EXPECT_LE(mine->ask(), 32 * mib);
}

int asked_pipe[2];
int resized_pipe[2];

// The other process does not get the lock, which this one holds, and does without.
TEST_F(job_test, ResizeWinsAgainstAnAutomaticBudgetThatIsJustFollowed) {
  ASSERT_EQ(pipe(asked_pipe), 0);
  ASSERT_EQ(pipe(resized_pipe), 0);
  result<job_mapping> opened = job_mapping::open(name_, {{budget_bytes, true}, true});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  result<std::unique_ptr<job>> mine = job::join(std::move(opened).value(), name_);
  ASSERT_TRUE(mine.ok()) << mine.error().message;
  const pid_t child = fork();
  if (child == 0) {
    const std::unique_ptr<job> other = join();
    char byte = 0;
    if (write(resized_pipe[1], "x", 1) != 1 || read(asked_pipe[0], &byte, 1) != 1) _exit(1);
    other->resize(32 * mib);
    _exit(write(resized_pipe[1], "x", 1) == 1 ? 0 : 1);
  }
  children_.push_back(child);
  char byte = 0;
  ASSERT_EQ(read(resized_pipe[0], &byte, 1), 1) << "it has joined";
  when_memory_is_read = [] {
    when_memory_is_read = nullptr;
    char done = 0;
    EXPECT_EQ(write(asked_pipe[1], "x", 1), 1);
    EXPECT_EQ(read(resized_pipe[0], &done, 1), 1);
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // longer than between two decisions
  static_cast<void>(mine.value()->exchange({}, {}));
  EXPECT_EQ(when_memory_is_read, nullptr) << "the budget was to follow the machine";
  const job_region& region = mine.value()->region();
  EXPECT_EQ(region.budget.load().bytes, 32 * mib);
  EXPECT_FALSE(region.budget.load().automatic);
}

TEST_F(job_test, WhatIsNotFilledOfTheBudgetIsPromised) {
  const std::unique_ptr<job> mine = join();
  const job_region& region = mine->region();
  EXPECT_EQ(region.compressed.promised_bytes.load(), budget_bytes);
  engine::statistics counted;
  counted.local_bytes = 100 * mib;
  counted.budget_bytes = budget_bytes;
  mine->tell(counted, {});
  static_cast<void>(mine->ask());
  EXPECT_EQ(region.compressed.promised_bytes.load(), 28 * mib);
}

TEST_F(job_test, WhatIsSaidOnceIsSaidOnceInTheWholeJob) {
  const std::unique_ptr<job> mine = join();
  EXPECT_TRUE(mine->first_to_name(1234));
  EXPECT_FALSE(mine->first_to_name(1234));
  EXPECT_TRUE(mine->first_to_name(99));
  start_member(1, [](job& other) { EXPECT_FALSE(other.first_to_name(1234)); });
}

TEST_F(job_test, MoreThanThereAreSlotsAreSums) {
  const std::unique_ptr<job> mine = join();
  constexpr std::size_t many = job_slots + 40;
  for (std::size_t i = 0; i < many; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const std::unique_ptr<job> other = join();
      engine::statistics counted;
      counted.misses = 1;
      other->tell(counted, {});
      other->leave();
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  }
  const job_totals all = totals_of(mine->region());
  EXPECT_EQ(all.processes, many + 1);
  EXPECT_EQ(all.counted.misses, many);
  EXPECT_EQ(all.unlisted, many + 1 - job_slots);
}

}  // namespace
}  // namespace far::preload
