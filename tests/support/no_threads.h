// A process that can start no thread.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>

namespace far {

// For as long as it lives, the system gives this process no thread: their stacks would not fit into its addresses.
class no_threads {
 public:
  no_threads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t endless;
    EXPECT_EQ(pthread_attr_init(&endless), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&endless, std::size_t{1} << 50), 0);
    EXPECT_EQ(pthread_setattr_default_np(&endless), 0);
    pthread_attr_destroy(&endless);
  }
  ~no_threads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }
  no_threads(const no_threads&) = delete;
  no_threads& operator=(const no_threads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace far
