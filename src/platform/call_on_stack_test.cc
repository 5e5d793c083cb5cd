#include "platform/call_on_stack.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace far::platform {
namespace {

struct seen {
  const std::byte* frame = nullptr;
  int calls = 0;
};

TEST(call_on_stack, runs_there_and_comes_back) {
  std::vector<std::byte> memory(64 << 10);
  void* top = memory.data() + memory.size() - 64;
  std::size_t room = 64;
  top = std::align(16, 16, top, room);
  const auto* const here = static_cast<const std::byte*>(__builtin_frame_address(0));
  seen found;
  for (int i = 0; i < 3; ++i) {
    call_on_stack(
        [](void* context) {
          auto& into = *static_cast<seen*>(context);
          into.frame = static_cast<const std::byte*>(__builtin_frame_address(0));
          ++into.calls;
        },
        &found, static_cast<std::byte*>(top));
  }
  EXPECT_EQ(found.calls, 3);
  EXPECT_GE(found.frame, memory.data());
  EXPECT_LT(found.frame, memory.data() + memory.size());
  EXPECT_EQ(here, static_cast<const std::byte*>(__builtin_frame_address(0)));
}

}  // namespace
}  // namespace far::platform
