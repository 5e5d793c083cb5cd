// Whether the program is built with AddressSanitizer or ThreadSanitizer. GCC defines a macro, clang answers a question.
#pragma once

#include "far/detail/thread_sanitizer.h"

#if defined(__SANITIZE_ADDRESS__)
#define FAR_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FAR_ADDRESS_SANITIZER 1
#endif
#endif

namespace far {

using detail::has_thread_sanitizer;

#if defined(FAR_ADDRESS_SANITIZER)
inline constexpr bool has_address_sanitizer = true;
#else
inline constexpr bool has_address_sanitizer = false;
#endif

}  // namespace far
