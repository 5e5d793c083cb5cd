// Time, as the engine sees it: monotonic nanoseconds. The simulation has a clock of its own.
#pragma once

#include <cstdint>
#include <ctime>

namespace far::platform {

class clock {
 public:
  virtual ~clock() = default;
  [[nodiscard]] virtual std::uint64_t now_ns() const = 0;
};

class monotonic_clock final : public clock {
 public:
  [[nodiscard]] std::uint64_t now_ns() const override {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
  }
};

}  // namespace far::platform
