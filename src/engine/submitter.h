// Whose a transfer is, where the far tier tells of it only when the thread that submitted it runs on
// (backend::channel::needs_its_submitter).
#pragma once

#include <cstdint>

namespace far::engine {

// A read that another thread submitted is late when it takes longer than a slow device does.
inline constexpr std::uint64_t late_ns = 100'000'000;

// Names the calling thread.
inline const void* this_thread() noexcept {
  thread_local const char mark = 0;
  return &mark;
}

}  // namespace far::engine
