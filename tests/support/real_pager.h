// For tests of the heap on the real pager.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include "base/sanitizers.h"
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
    if (has_thread_sanitizer) {
      GTEST_SKIP() << "ThreadSanitizer cannot see bytes that the kernel puts in place; simulated_stress_test.cc runs";
    }
  }
};

// Fixture of tests whose runtimes have the far tier that the test says.
class far_tier_test : public real_pager_test<> {
 protected:
  // Ends the one before.
  runtime& farheap(const std::string& far_tier, std::size_t local_bytes = std::size_t{16} << 20) {
    home_.reset();
    runtime_options chosen = small_runtime(local_bytes);
    chosen.far = far_tier;
    home_ = std::make_unique<runtime>(chosen);
    return *home_;
  }

  std::unique_ptr<runtime> home_;
};

}  // namespace far::heap
