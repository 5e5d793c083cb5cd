// Time, as the engine sees it: monotonic nanoseconds. The simulation has a clock of its own.
#pragma once

#include <cstdint>
#include <ctime>
#include <type_traits>

namespace far::platform {

// Nobody owns one by this type, so that clocks need no destructor.
class clock {
 public:
  [[nodiscard]] virtual std::uint64_t now_ns() const = 0;

 protected:
  ~clock() = default;
};

class monotonic_clock final : public clock {
 public:
  [[nodiscard]] std::uint64_t now_ns() const override {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
  }
};
// Static ones are asked until the very end of a process, after the destructors of static objects.
static_assert(std::is_trivially_destructible_v<monotonic_clock>);

}  // namespace far::platform
