// The functions that end a process without running destructors, so the report is written here.
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "far/detail/api.h"
#include "preload/runtime.h"

extern "C" {

FAR_API void _exit(int status) {
  far::preload::report_at_exit();
  using function = void (*)(int);
  static const auto next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "_exit"));
  next(status);
  __builtin_unreachable();
}

FAR_API void _Exit(int status) {
  _exit(status);
}

FAR_API void quick_exit(int status) {
  far::preload::report_at_exit();
  using function = void (*)(int);
  static const auto next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "quick_exit"));
  next(status);
  __builtin_unreachable();
}

}  // extern "C"
