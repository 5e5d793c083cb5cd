// For tests of the heap on the real pager.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "far/runtime.h"
#include "platform/kernel_features.h"

namespace far::heap {

// Options of a small runtime in which objects move only when the test says so.
[[nodiscard]] inline runtime_options small_runtime(std::size_t local_bytes = std::size_t{16} << 20) {
  runtime_options chosen;
  chosen.local_bytes = local_bytes;
  chosen.workers = 2;
  chosen.evacuate_garbage_share = 2;
  return chosen;
}

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
