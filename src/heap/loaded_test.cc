// Runtimes that live as long as a library that is opened by dlopen(): they are made and destroyed while the C library's
// own lock is held. Needs permission for userfaultfd.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>

#include "base/check.h"
#include "far/unique_ptr.h"
#include "tests/support/real_pager.h"

namespace far::heap {
namespace {

using loaded_test = real_pager_test<>;

void within_a_minute(const std::function<void()>& body) {
  const std::future<void> end = std::async(std::launch::async, body);
  FAR_CHECK(end.wait_for(std::chrono::minutes(1)) == std::future_status::ready, "nothing waits for the loader's lock");
}

TEST_F(loaded_test, a_library_has_a_static_runtime) {
  void* library = nullptr;
  within_a_minute([&] { library = dlopen(STATIC_RUNTIME, RTLD_NOW | RTLD_LOCAL); });
  ASSERT_NE(library, nullptr) << dlerror();
  const auto made_in_library = reinterpret_cast<int (*)()>(dlsym(library, "made_in_library"));
  ASSERT_NE(made_in_library, nullptr) << dlerror();
  EXPECT_EQ(made_in_library(), 7);
  within_a_minute([&] { EXPECT_EQ(dlclose(library), 0); });
}

// So that the program has what the library needs.
TEST_F(loaded_test, a_program_has_a_runtime) {
  runtime farheap(small_runtime());
  EXPECT_EQ(make_unique<int>(farheap, 7).read(), 7);
}

}  // namespace
}  // namespace far::heap
