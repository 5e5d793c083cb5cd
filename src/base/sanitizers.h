// Whether the program is built with AddressSanitizer or ThreadSanitizer, and what they need to know. GCC defines a
// macro, clang answers a question.
#pragma once

#include "far/detail/thread_sanitizer.h"

#if defined(__SANITIZE_ADDRESS__)
#define FAR_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FAR_ADDRESS_SANITIZER 1
#endif
#endif

// Of ThreadSanitizer.
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);

namespace far {

using detail::has_thread_sanitizer;

#if defined(FAR_ADDRESS_SANITIZER)
inline constexpr bool has_address_sanitizer = true;
#else
inline constexpr bool has_address_sanitizer = false;
#endif

// While it exists, ThreadSanitizer does not look at what the thread or fiber reads: for bytes that others may write to
// meanwhile, and that are not used then.
class unseen_reads {
 public:
  unseen_reads() {
    if constexpr (has_thread_sanitizer) AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  }
  ~unseen_reads() {
    if constexpr (has_thread_sanitizer) AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  unseen_reads(const unseen_reads&) = delete;
  unseen_reads& operator=(const unseen_reads&) = delete;
};

}  // namespace far
