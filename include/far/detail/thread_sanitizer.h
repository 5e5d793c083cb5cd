// Whether the program is built with ThreadSanitizer, which does not understand fences, and reports the reads of a
// sequence lock as races.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define FAR_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FAR_THREAD_SANITIZER 1
#endif
#endif

namespace far::detail {

#if defined(FAR_THREAD_SANITIZER)
inline constexpr bool has_thread_sanitizer = true;
#else
inline constexpr bool has_thread_sanitizer = false;
#endif

}  // namespace far::detail
