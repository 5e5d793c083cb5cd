// The submitter of a transfer, where the far tier reports it only while the submitting thread runs
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
