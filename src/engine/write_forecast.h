// Whether pages that were written the last time they were here are written again: in phases of a program, mostly all
// of them are, or none.
#pragma once

#include <atomic>
#include <cstdint>

namespace far::engine {

// A page of which writes are expected is mapped writable when it comes in for a read: that saves the fault of the
// write, but if none comes, the page has to be lifted to find out, which is about as dear, and much dearer beside
// threads that run (docs/decisions/0001-moving-pages.md). So the last few hundred cases decide. Any thread; updates
// that get lost do no harm.
class write_forecast {
 public:
  // A page of which writes were expected has left, or has been written to.
  void note(bool was_written) noexcept {
    const std::uint32_t share = share_.load(std::memory_order_relaxed);
    share_.store(was_written ? share + (all - share) / memory : share - share / memory, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_right() const noexcept { return share_.load(std::memory_order_relaxed) >= all / 2; }

 private:
  static constexpr std::uint32_t all = 1 << 16;
  static constexpr std::uint32_t memory = 128;  // cases

  std::atomic<std::uint32_t> share_{all};
};

}  // namespace far::engine
