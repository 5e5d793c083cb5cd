// dlopen and dlmopen, without RTLD_DEEPBIND.
//
// With that flag a library finds names in itself and in what it needs before all others: malloc, mmap and fork would be
// the C library's there, and a block of the runtime's would be freed as one of the C library's. PHP opens its
// extensions in this way. The runtime comes first everywhere, so a name that this library and the program both define
// is now the program's, as it is without the flag.
//
// The C library knows by the return address which library asks, and where that one looks for others (RUNPATH). So both
// functions must end in a jump: CMake compiles this file with optimization in every build, and a test would notice.
#include <dlfcn.h>

#include "base/log.h"
#include "far/detail/api.h"

#ifdef __clang__
#define FAR_MUST_JUMP [[clang::musttail]]
#else
#define FAR_MUST_JUMP
#endif

namespace {

[[gnu::noinline]] int without_deep_binding(const char* file, int mode) {
  if ((mode & RTLD_DEEPBIND) == 0) return mode;
  far::log_line(far::log_level::verbose, "RTLD_DEEPBIND has no effect on %s, which must find the runtime's malloc",
                file);
  return mode & ~RTLD_DEEPBIND;
}

}  // namespace

extern "C" {

FAR_API void* dlopen(const char* file, int mode) {
  using function = void* (*)(const char*, int);
  static const auto next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "dlopen"));
  FAR_MUST_JUMP return next(file, without_deep_binding(file, mode));
}

// Another namespace than the program's has a C library of its own, and no runtime: its heap is its own.
FAR_API void* dlmopen(Lmid_t space, const char* file, int mode) {
  using function = void* (*)(Lmid_t, const char*, int);
  static const auto next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "dlmopen"));
  FAR_MUST_JUMP return next(space, file, space == LM_ID_BASE ? without_deep_binding(file, mode) : mode);
}

}  // extern "C"
