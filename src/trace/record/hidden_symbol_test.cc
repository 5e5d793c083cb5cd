#include "trace/record/hidden_symbol.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

extern "C" __attribute__((noinline, used, visibility("hidden"))) int far_test_hidden_function() {
  return 7;
}

namespace far::trace {
namespace {

TEST(hidden_symbol, FindsWhatIsNotExported) {
  void* const here = reinterpret_cast<void*>(&far_test_hidden_function);
  ASSERT_EQ(dlsym(RTLD_DEFAULT, "far_test_hidden_function"), nullptr);
  EXPECT_EQ(find_hidden_function(here, "far_test_hidden_function"), here);
}

TEST(hidden_symbol, FindsNothingElse) {
  const void* const here = reinterpret_cast<void*>(&far_test_hidden_function);
  EXPECT_EQ(find_hidden_function(here, "far_test_hidden"), nullptr);
  EXPECT_EQ(find_hidden_function(here, "far_test_hidden_function2"), nullptr);
  int local = 0;
  EXPECT_EQ(find_hidden_function(&local, "far_test_hidden_function"), nullptr);
}

}  // namespace
}  // namespace far::trace
