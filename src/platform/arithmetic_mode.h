// How a thread's processor calculates with floating-point numbers: how it rounds, which exceptions trap, and which it
// has noted. All of this is the program's, which may have changed it, and looks at what was noted.
#pragma once

#include <cstdint>

namespace far::platform {

#if defined(__x86_64__)
using arithmetic_mode = std::uint32_t;

[[nodiscard]] inline arithmetic_mode current_arithmetic_mode() noexcept {
  return __builtin_ia32_stmxcsr();
}
inline void set_arithmetic_mode(arithmetic_mode mode) noexcept {
  __builtin_ia32_ldmxcsr(mode);
}
// As a thread starts: to nearest, and nothing traps.
inline constexpr arithmetic_mode usual_arithmetic_mode = 0x1f80;
#elif defined(__aarch64__)
struct arithmetic_mode {
  std::uint64_t control = 0;
  std::uint64_t noted = 0;
};

[[nodiscard]] inline arithmetic_mode current_arithmetic_mode() noexcept {
  arithmetic_mode mode;
  asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(mode.control), "=r"(mode.noted));
  return mode;
}
inline void set_arithmetic_mode(const arithmetic_mode& mode) noexcept {
  asm volatile("msr fpcr, %0\n\tmsr fpsr, %1" ::"r"(mode.control), "r"(mode.noted));
}
inline constexpr arithmetic_mode usual_arithmetic_mode{};
#endif

}  // namespace far::platform
