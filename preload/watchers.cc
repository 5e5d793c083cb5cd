#include "preload/watchers.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/ether.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstring>

// Of sanitizers, if the program has them. dlsym() would allocate its error, by the program's malloc(), before main().
extern "C" {
[[gnu::weak]] void __msan_init();
[[gnu::weak]] void __tsan_init();
[[gnu::weak]] int __lsan_do_leak_check();
}

namespace far::preload {

bool is_traced() {
  constexpr const char* line = "\nTracerPid:\t";
  char about[2048];
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t got = read(file, about, sizeof about - 1);
  close(file);
  about[got > 0 ? got : 0] = 0;
  const char* const found = std::strstr(about, line);
  return found != nullptr && found[std::strlen(line)] != '0';
}

const char* noting_sanitizer() {
  if (__msan_init != nullptr) return "MemorySanitizer";
  return __tsan_init != nullptr ? "ThreadSanitizer" : nullptr;
}

// Those of gcc export none of their own names, only what the C library has as well: for example a function that hardly
// any program defines.
bool has_sanitizer_of_calls() {
  if (__lsan_do_leak_check != nullptr) return true;
  Dl_info of_function{};
  Dl_info of_program{};
  return dladdr(reinterpret_cast<const void*>(ether_line), &of_function) != 0 &&
         dladdr(reinterpret_cast<const void*>(getauxval(AT_PHDR)), &of_program) != 0 &&
         of_function.dli_fbase == of_program.dli_fbase;
}

}  // namespace far::preload
