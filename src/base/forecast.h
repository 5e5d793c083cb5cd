// Whether an expectation is worth acting on: phases of a program mostly fulfil it nearly always, or hardly ever.
#pragma once

#include <atomic>
#include <cstdint>

namespace far {

// The share of the last hundred cases or so in which it came true. Any thread; updates that get lost do no harm.
class forecast {
 public:
  void note(bool came_true) noexcept {
    const std::uint32_t share = share_.load(std::memory_order_relaxed);
    share_.store(came_true ? share + (all - share) / memory : share - share / memory, std::memory_order_relaxed);
  }
  // In most cases. Also before there was any.
  [[nodiscard]] bool is_right() const noexcept { return share_.load(std::memory_order_relaxed) >= all / 2; }
  // At least once in so many cases.
  [[nodiscard]] bool comes_true_once_in(std::uint32_t cases) const noexcept {
    return share_.load(std::memory_order_relaxed) >= all / cases;
  }
  // As if there had been none.
  void forget() noexcept { share_.store(all, std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t all = 1 << 16;
  static constexpr std::uint32_t memory = 128;  // cases

  std::atomic<std::uint32_t> share_{all};
};

}  // namespace far
