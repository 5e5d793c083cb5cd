// SIGBUS that is not a miss, in fault_mode::in_line. Needs permission for userfaultfd.
#include "pager/inline_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>

#include "pager/pager.h"
#include "platform/kernel_features.h"

namespace far::pager {
namespace {

constexpr int goes_on = 7;

class inline_guard_test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!platform::probe_kernel().userfaultfd) GTEST_SKIP() << "no userfaultfd";
  }

  // How a process ends that has this action for SIGBUS, then a pager, and then does something. `act` gets an address
  // of far memory.
  static int end_of(void (*handler)(int), const std::function<void(std::byte*)>& act) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      signal(SIGBUS, handler);
      auto created = pager::create({.budget_bytes = 16 * mib, .mode = fault_mode::in_line});
      if (!created.ok()) _exit(1);
      std::byte* const memory = created.value()->map(mib, PROT_READ | PROT_WRITE, page_bytes).value();
      memory[0] = std::byte{1};
      act(memory);
      created.value()->evict(memory, mib);
      _exit(memory[0] == std::byte{1} ? goes_on : 2);  // misses are resolved as before
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }
  static bool ended_by(int status, int signal) { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }
  static bool went_on(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == goes_on; }

  static void send(std::byte* /*memory*/) { kill(getpid(), SIGBUS); }
  // The kernel lets a process say what it likes to itself.
  static void say(int code, std::byte* memory) {
    siginfo_t about{};
    about.si_signo = SIGBUS;
    about.si_code = code;
    about.si_addr = memory;
    syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, &about);
  }
  static void send_with_address(std::byte* memory) { say(SI_QUEUE, memory); }
  // As the kernel says that the machine's memory has lost what was there.
  static void lose(std::byte* memory) { say(BUS_MCEERR_AR, memory); }
  // The same of memory that nobody has asked for yet (PR_MCE_KILL_EARLY).
  static void lose_unasked(std::byte* memory) { say(BUS_MCEERR_AO, memory); }
  // Looks behind the end of a file.
  static void fault(std::byte* /*memory*/) {
    const int file = memfd_create("empty", MFD_CLOEXEC);
    const void* const mapped = mmap(nullptr, page_bytes, PROT_READ, MAP_SHARED, file, 0);
    static_cast<void>(*static_cast<const volatile std::byte*>(mapped));
  }
};

TEST_F(inline_guard_test, a_signal_that_is_sent_ends_the_program_by_default) {
  const auto at_once = [](void (*act)(std::byte*)) {
    return [act](std::byte* memory) {
      act(memory);
      _exit(goes_on);
    };
  };
  EXPECT_TRUE(ended_by(end_of(SIG_DFL, at_once(send)), SIGBUS));
  EXPECT_TRUE(ended_by(end_of(SIG_DFL, at_once(send_with_address)), SIGBUS));
}

TEST_F(inline_guard_test, a_signal_that_is_sent_can_be_ignored) {
  EXPECT_TRUE(went_on(end_of(SIG_IGN, send)));
  EXPECT_TRUE(went_on(end_of(SIG_IGN, send_with_address)));
}

TEST_F(inline_guard_test, a_signal_that_is_sent_reaches_the_handler) {
  static volatile sig_atomic_t seen = 0;
  const auto count = [](int) { seen = seen + 1; };
  const auto expect_one = [](void (*act)(std::byte*)) {
    return [act](std::byte* memory) {
      act(memory);
      if (seen != 1) _exit(3);
    };
  };
  EXPECT_TRUE(went_on(end_of(count, expect_one(send))));
  EXPECT_TRUE(went_on(end_of(count, expect_one(send_with_address))));
}

TEST_F(inline_guard_test, lost_memory_of_the_machine_is_no_miss) {
  static volatile sig_atomic_t seen = 0;
  const auto expect_one = [](std::byte* memory) {
    lose(memory);
    if (seen != 1) _exit(3);
  };
  EXPECT_TRUE(went_on(end_of([](int) { seen = seen + 1; }, expect_one)));
  EXPECT_TRUE(ended_by(end_of(SIG_DFL, lose), SIGBUS));
  EXPECT_TRUE(ended_by(end_of(SIG_IGN, lose), SIGBUS));
  EXPECT_TRUE(ended_by(end_of(SIG_DFL, lose_unasked), SIGBUS));
  EXPECT_TRUE(went_on(end_of(SIG_IGN, lose_unasked)));
}

TEST_F(inline_guard_test, a_fault_of_the_program_ends_it_whether_ignored_or_not) {
  EXPECT_TRUE(ended_by(end_of(SIG_DFL, fault), SIGBUS));
  EXPECT_TRUE(ended_by(end_of(SIG_IGN, fault), SIGBUS));
}

}  // namespace
}  // namespace far::pager
