#include "preload/in_runtime.h"

#include <array>
#include <atomic>
#include <cstddef>

#include "platform/call_on_stack.h"
#include "platform/local_memory.h"
#include "preload/runtime.h"

namespace far::preload {
namespace {

constexpr std::size_t stack_bytes = std::size_t{256} << 10;

// Unused stacks. There is no lock, because a handler of the program may interrupt a thread here, and come here as well.
constinit std::array<std::atomic<std::byte*>, 64> spare_stacks{};

std::byte* take_stack() {
  for (std::atomic<std::byte*>& spare : spare_stacks) {
    if (spare.load(std::memory_order_relaxed) == nullptr) continue;
    if (std::byte* const taken = spare.exchange(nullptr, std::memory_order_acquire)) return taken;
  }
  return platform::map_local(stack_bytes);
}

void give_back(std::byte* stack) {
  for (std::atomic<std::byte*>& spare : spare_stacks) {
    std::byte* none = nullptr;
    if (spare.compare_exchange_strong(none, stack, std::memory_order_release)) return;
  }
  platform::unmap_local(stack, stack_bytes);
}

}  // namespace

bool stack_is_far() noexcept {
  const pager::pager* const far = active_pager();
  return far != nullptr && far->contains(__builtin_frame_address(0));
}

void call_on_local_stack(void (*body)(void* context), void* context) noexcept {
  std::byte* const stack = take_stack();
  platform::call_on_stack(body, context, stack + stack_bytes);
  give_back(stack);
}

}  // namespace far::preload
