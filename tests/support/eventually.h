// Waits for something that other threads or processes do.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace far {

// Whether the condition holds within two minutes: also where a busy machine keeps those others waiting.
[[nodiscard]] inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace far
