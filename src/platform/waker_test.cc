#include "platform/waker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace far::platform {
namespace {

// The second of two wake-ups in a row often comes just as the thread returns from its sleep.
TEST(waker, a_thread_that_is_woken_finds_what_was_stored_before) {
  constexpr unsigned rounds = 60'000;
  constexpr std::chrono::seconds enough{3};    // on a busy machine a round takes some milliseconds
  constexpr std::chrono::seconds longest{60};  // nor is it as late as that
  waker tested;
  alignas(64) std::atomic<unsigned> stored{0};
  alignas(64) std::atomic<unsigned> seen{0};
  std::atomic<unsigned> missed{0};
  std::atomic<bool> is_over{false};
  std::thread sleeper([&] {
    while (!is_over.load() && missed.load() == 0) {
      const auto since = std::chrono::steady_clock::now();
      tested.sleep(std::chrono::nanoseconds(longest).count());
      missed += std::chrono::steady_clock::now() - since >= longest;
      seen.store(stored.load(std::memory_order_relaxed));
    }
  });
  std::uint32_t random = 1;
  const auto end = std::chrono::steady_clock::now() + enough;
  for (unsigned round = 1; round <= rounds && missed.load() == 0 && std::chrono::steady_clock::now() < end; ++round) {
    const auto wake = [&](unsigned value) {
      stored.store(value, std::memory_order_relaxed);
      tested.wake();
    };
    wake(2 * round - 1);
    random = random * 1664525 + 1013904223;
    for (std::uint32_t i = random >> 22; i > 0; --i) asm volatile("");
    wake(2 * round);
    for (unsigned looks = 0; seen.load() != 2 * round && missed.load() == 0; ++looks) {
      if (looks > 10'000) std::this_thread::yield();
    }
  }
  is_over.store(true);
  tested.wake();
  sleeper.join();
  EXPECT_EQ(missed.load(), 0u);
}

}  // namespace
}  // namespace far::platform
