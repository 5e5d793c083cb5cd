// The system calls themselves, by the instruction: no C library and nothing that stands in its place sees them. The
// kernel that answers them is the model: their effect on twins (world.h) is the promise of Linux.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace memory_calls {

inline constexpr std::size_t page_bytes = 4096;

// The result of a call: errno is 0 when it succeeded.
struct outcome {
  long value = 0;
  int error = 0;

  [[nodiscard]] bool ok() const { return error == 0; }
  [[nodiscard]] std::byte* address() const { return reinterpret_cast<std::byte*>(value); }
};

template <typename Value>
long as_argument(Value value) {
  if constexpr (std::is_pointer_v<Value>) {
    return static_cast<long>(reinterpret_cast<std::uintptr_t>(value));
  } else {
    return static_cast<long>(value);
  }
}

// The value that the kernel returned, -errno for an error.
inline long raw_call(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  long result = 0;
  register long fourth asm("r10") = d;
  register long fifth asm("r8") = e;
  register long sixth asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
               : "rcx", "r11", "memory");
  return result;
#else
  const long result = ::syscall(number, a, b, c, d, e, f);
  return result == -1 ? -errno : result;
#endif
}

template <typename A = long, typename B = long, typename C = long, typename D = long, typename E = long,
          typename F = long>
outcome kernel_call(long number, A a = 0, B b = 0, C c = 0, D d = 0, E e = 0, F f = 0) {
  const long result =
      raw_call(number, as_argument(a), as_argument(b), as_argument(c), as_argument(d), as_argument(e), as_argument(f));
  constexpr long lowest_error = -4095;
  if (result < 0 && result >= lowest_error) return {-1, static_cast<int>(-result)};
  return {result, 0};
}

// The outcome of a call of the C library that returns -1, or MAP_FAILED, for an error.
template <typename Call>
outcome library_call(Call call) {
  errno = 0;
  const long value = as_argument(call());
  return value == -1 ? outcome{-1, errno} : outcome{value, 0};
}

}  // namespace memory_calls
