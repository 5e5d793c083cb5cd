#include "platform/kernel_features.h"

#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>

#include "platform/userfaultfd_abi.h"

namespace far::platform {
namespace {

std::size_t open_descriptors() {
  DIR* directory = opendir("/proc/self/fd");
  std::size_t count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

TEST(KernelFeatures, EveryFlagHasOneDescription) {
  std::set<std::string> names;
  kernel_features all;
  for (const feature_description& description : known_features()) {
    EXPECT_TRUE(names.insert(description.name).second) << description.name;
    EXPECT_FALSE(all.*description.member) << description.name << " is described twice";
    all.*description.member = true;
    EXPECT_STRNE(description.use, "");
    EXPECT_STRNE(description.enable, "");
  }
  // The flags are plain bools at the front of the struct, so one that nobody described would still be 0.
  const auto* flags = reinterpret_cast<const unsigned char*>(&all);
  for (std::size_t i = 0; i < known_features().size(); ++i) EXPECT_EQ(flags[i], 1) << "flag number " << i;
}

TEST(KernelFeatures, EachNameSwitchesOffItsFlagAndNothingUnrelated) {
  const kernel_features everything = probe_kernel_now(nullptr);
  for (const feature_description& disabled : known_features()) {
    const kernel_features found = probe_kernel_now(disabled.name);
    EXPECT_FALSE(found.*disabled.member) << disabled.name;
    const bool base = std::string(disabled.name).starts_with("userfaultfd");
    for (const feature_description& other : known_features()) {
      if (other.member == disabled.member || base) continue;
      EXPECT_EQ(found.*other.member, everything.*other.member) << disabled.name << " changed " << other.name;
    }
  }
}

TEST(KernelFeatures, WithoutUserfaultfdNothingOfItIsLeft) {
  const kernel_features found = probe_kernel_now("userfaultfd");
  EXPECT_FALSE(found.userfaultfd_kernel_faults);
  EXPECT_FALSE(found.sigbus);
  EXPECT_FALSE(found.move);
  EXPECT_FALSE(found.write_protect);
  EXPECT_NE(found.userfaultfd_error_code, 0);
  EXPECT_LT(open_userfaultfd(found), 0);
}

TEST(KernelFeatures, AListDisablesEachOfItsNames) {
  const kernel_features found = probe_kernel_now("move,process_madvise,,pagemap");
  EXPECT_FALSE(found.move);
  EXPECT_FALSE(found.vectored_discard);
  EXPECT_FALSE(found.pagemap);
  EXPECT_EQ(found.membarrier, probe_kernel_now(nullptr).membarrier);
}

TEST(KernelFeatures, AnUnknownNameIsReported) {
  testing::internal::CaptureStderr();
  const kernel_features found = probe_kernel_now("movee");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("'movee'"), std::string::npos) << said;
  EXPECT_EQ(found.move, probe_kernel_now(nullptr).move);
}

TEST(KernelFeatures, AgreesWithWhatTheKernelSaysItOffers) {
  const kernel_features found = probe_kernel_now(nullptr);
  const int descriptor = open_userfaultfd(found);
  if (descriptor < 0) GTEST_SKIP() << "no permission for userfaultfd here: " << strerror(-descriptor);
  uffdio_api api{};
  api.api = UFFD_API;
  ASSERT_EQ(ioctl(descriptor, UFFDIO_API, &api), 0) << strerror(errno);
  close(descriptor);
  EXPECT_EQ(found.move, (api.features & abi::uffd_feature_move) != 0);
  EXPECT_EQ(found.sigbus, (api.features & UFFD_FEATURE_SIGBUS) != 0);
  EXPECT_EQ(found.thread_id, (api.features & UFFD_FEATURE_THREAD_ID) != 0);
  EXPECT_EQ(found.exact_address, (api.features & UFFD_FEATURE_EXACT_ADDRESS) != 0);
  EXPECT_EQ(found.write_protect, (api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP) != 0);
}

// As kernels before 5.18 do where a page may only be read.
bool protects_no_copies = false;

TEST(KernelFeatures, FirstWritesThatTheKernelForgetsAreNotReliedOn) {
  if (!probe_kernel_now(nullptr).first_writes) GTEST_SKIP() << "this kernel forgets them, or there is no permission";
  protects_no_copies = true;
  const kernel_features found = probe_kernel_now(nullptr);
  protects_no_copies = false;
  EXPECT_FALSE(found.first_writes);
  EXPECT_TRUE(found.write_protect) << "pages can still be copied out";
}

TEST(KernelFeatures, ProbingLeavesNoDescriptorAndKeepsErrno) {
  const std::size_t before = open_descriptors();
  errno = ERANGE;
  static_cast<void>(probe_kernel_now(nullptr));
  EXPECT_EQ(errno, ERANGE);
  EXPECT_EQ(open_descriptors(), before);
}

#ifdef __x86_64__
volatile unsigned char selector = 0;  // calls go to the kernel
volatile int calls_seen = 0;

void on_dispatched(int) {
  selector = 0;
  calls_seen = calls_seen + 1;
}

TEST(KernelFeatures, ProbingLeavesTheDispatchOfCallsOn) {
  constexpr int set_syscall_user_dispatch = 59;
  if (prctl(set_syscall_user_dispatch, 1, 0, 0, &selector) != 0) GTEST_SKIP() << "this kernel has no such dispatch";
  struct sigaction handler{};
  struct sigaction before{};
  handler.sa_handler = on_dispatched;
  sigaction(SIGSYS, &handler, &before);
  EXPECT_TRUE(probe_kernel_now(nullptr).syscall_user_dispatch);
  selector = 1;
  getppid();
  selector = 0;
  prctl(set_syscall_user_dispatch, 0, 0, 0, 0);
  sigaction(SIGSYS, &before, nullptr);
  EXPECT_EQ(calls_seen, 1);
}
#endif

TEST(KernelFeatures, IsProbedOnce) {
  EXPECT_EQ(&probe_kernel(), &probe_kernel());
}

TEST(KernelFeatures, DirectIo) {
  EXPECT_EQ(direct_io_works("/no/such/directory"), -ENOENT);
  EXPECT_EQ(direct_io_works("/proc/self/cmdline"), -ENOTDIR);
  EXPECT_GE(direct_io_works("/var/tmp"), 0);
}

}  // namespace
}  // namespace far::platform

// In place of the C library's, which does the rest. As there, what the caller did not give is read from its stack, too.
extern "C" __attribute__((no_sanitize("address"))) long syscall(long number, ...) noexcept {
  using function = long (*)(long, long, long, long, long, long, long);
  static const auto next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "syscall"));
  std::va_list given;
  va_start(given, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(given, long);
  va_end(given);
  if (number == SYS_ioctl && arguments[1] == static_cast<long>(UFFDIO_COPY) && far::platform::protects_no_copies) {
    reinterpret_cast<uffdio_copy*>(arguments[2])->mode = 0;
  }
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
