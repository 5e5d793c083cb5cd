// The functions of the C library whose names the runtime has taken. They are found before the program starts, because a
// handler of the program, or the child of a fork, may be the first to call one: neither may ask the loader, nor wait
// for a static variable that another thread was about to initialize.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace far::preload {

template <std::size_t bytes>
struct function_name {
  char text[bytes];
  constexpr function_name(const char (&given)[bytes]) { std::copy_n(given, bytes, text); }
};

template <function_name name>
class next_function {
 public:
  // Another library's constructor may call it before ours have run, which find all that are asked for anywhere.
  [[nodiscard]] static void* get() noexcept {
    void* const known = found_.load(std::memory_order_relaxed);
    return known != nullptr ? known : find();
  }

 private:
  static void* find() noexcept { return dlsym(RTLD_NEXT, name.text); }
  static inline std::atomic<void*> found_{find()};
};

// `Function`: its type, a pointer to a function.
template <function_name name, typename Function>
[[nodiscard]] Function next() noexcept {
  return reinterpret_cast<Function>(next_function<name>::get());
}

}  // namespace far::preload
