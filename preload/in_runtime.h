// How the program's threads enter the runtime. Inside it, their allocations and their stacks are local.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "platform/runtime_thread.h"

namespace far::preload {

// Whether the calling thread's stack lies in the far heap, like a coroutine's stack from malloc.
[[nodiscard]] bool stack_is_far() noexcept;

// Calls `body(context)` on a stack in local memory. Makes no system call that is given an address on the far one.
void call_on_local_stack(void (*body)(void* context), void* context) noexcept;

template <typename Body>
auto call_on_local_stack(Body& body) noexcept -> decltype(body()) {
  if constexpr (std::is_void_v<decltype(body())>) {
    call_on_local_stack([](void* context) { (*static_cast<Body*>(context))(); }, &body);
  } else {
    std::pair<Body*, std::optional<decltype(body())>> call{&body, std::nullopt};
    call_on_local_stack(
        [](void* context) {
          auto& shared = *static_cast<decltype(call)*>(context);
          shared.second.emplace((*shared.first)());
        },
        &call);
    return std::move(*call.second);
  }
}

// Calls `body`, which must not throw. Everything that takes locks of the runtime runs in here: on a far stack it could
// miss at any time, and the miss would wait for the very locks that it holds. Signal shields inside cost nothing more.
template <typename Body>
auto in_runtime(Body body) noexcept -> decltype(body()) {
  const platform::runtime_section section;
  if (!stack_is_far()) [[likely]]
    return body();
  return call_on_local_stack(body);
}

// The same, always on a stack of the runtime: the program's may be too small for `body`.
template <typename Body>
auto on_runtime_stack(Body body) noexcept -> decltype(body()) {
  const platform::runtime_section section;
  return call_on_local_stack(body);
}

}  // namespace far::preload
