// For tests of the heap on the real pager.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "platform/kernel_features.h"

namespace far::heap {

// Fixture of tests that make a far::runtime on the kernel's userfaultfd.
template <typename Base = ::testing::Test>
class real_pager_test : public Base {
 protected:
  void SetUp() override {
    if (!platform::probe_kernel().userfaultfd) {
      GTEST_SKIP() << "no userfaultfd: " << std::strerror(platform::probe_kernel().userfaultfd_error_code);
    }
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer cannot see bytes that the kernel puts in place; simulated_stress_test.cc runs";
#endif
  }
};

}  // namespace far::heap
