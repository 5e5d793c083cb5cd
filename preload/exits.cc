// The functions that end a process without running destructors, so the report is written here.
#include <stdlib.h>
#include <unistd.h>

#include "far/detail/api.h"
#include "preload/next_function.h"
#include "preload/runtime.h"

extern "C" {

FAR_API void _exit(int status) {
  far::preload::report_at_exit();
  const auto next = far::preload::next<"_exit", void (*)(int)>();
  next(status);
  __builtin_unreachable();
}

FAR_API void _Exit(int status) {
  _exit(status);
}

FAR_API void quick_exit(int status) {
  far::preload::report_at_exit();
  const auto next = far::preload::next<"quick_exit", void (*)(int)>();
  next(status);
  __builtin_unreachable();
}

}  // extern "C"
