#include "base/xxh3.h"

namespace far {

#if defined(__x86_64__)

bool has_avx2() noexcept {
  __builtin_cpu_init();  // does nothing the second time; needed before constructors have run
  return __builtin_cpu_supports("avx2") != 0;
}

const xxh3_form& fastest_xxh3() noexcept {
  return has_avx2() ? xxh3_avx2 : xxh3_baseline;
}

#else

const xxh3_form& fastest_xxh3() noexcept {
  return xxh3_baseline;
}

#endif

}  // namespace far
