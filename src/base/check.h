// Checks that stay on in release builds.
//
// FAR_CHECK guards an invariant: when it is broken the process stops at once, with the place and the reason, because
// continuing could return wrong bytes. FAR_DCHECK is the same in builds without NDEBUG and costs nothing otherwise.
#pragma once

namespace far {

// Writes one line to standard error without allocating and aborts. Safe inside a signal handler.
[[noreturn]] void check_failed(const char* file, int line, const char* expression, const char* why) noexcept;

}  // namespace far

#define FAR_CHECK(condition, why) \
  (__builtin_expect(!!(condition), 1) ? void(0) : ::far::check_failed(__FILE__, __LINE__, #condition, why))

#ifdef NDEBUG
#define FAR_DCHECK(condition, why) static_cast<void>(sizeof((condition) ? (why) : nullptr))
#else
#define FAR_DCHECK(condition, why) FAR_CHECK(condition, why)
#endif
