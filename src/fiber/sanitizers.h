// Announces switches of stacks to AddressSanitizer and ThreadSanitizer. Empty in other builds.
#pragma once

#include <cstddef>

#include "base/sanitizers.h"

#if defined(FAR_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(FAR_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

namespace far::fiber::sanitizers {

#if defined(FAR_ADDRESS_SANITIZER) || defined(FAR_THREAD_SANITIZER)
inline constexpr bool present = true;
#else
inline constexpr bool present = false;
#endif

#if defined(FAR_ADDRESS_SANITIZER)
inline void leave_stack(void** save, const void* to_low, std::size_t to_bytes) {
  __sanitizer_start_switch_fiber(save, to_low, to_bytes);
}
inline void arrive_on_stack(void* saved, const void** from_low, std::size_t* from_bytes) {
  __sanitizer_finish_switch_fiber(saved, from_low, from_bytes);
}
// A fiber ends without returning through its last frames: their poison must not hit the next owner of the stack.
inline void forget_frames(const void* low, std::size_t bytes) {
  __asan_unpoison_memory_region(low, bytes);
}
#else
inline void leave_stack(void** /*save*/, const void* /*to_low*/, std::size_t /*to_bytes*/) {}
inline void arrive_on_stack(void* /*saved*/, const void** /*from_low*/, std::size_t* /*from_bytes*/) {}
inline void forget_frames(const void* /*low*/, std::size_t /*bytes*/) {}
#endif

#if defined(FAR_THREAD_SANITIZER)
inline void* create_thread_sanitizer_fiber() {
  return __tsan_create_fiber(0);
}
inline void destroy_thread_sanitizer_fiber(void* fiber) {
  __tsan_destroy_fiber(fiber);
}
inline void* current_thread_sanitizer_fiber() {
  return __tsan_get_current_fiber();
}
inline void name_thread_sanitizer_fiber(void* fiber, const char* name) {
  __tsan_set_fiber_name(fiber, name);
}
inline void switch_thread_sanitizer_fiber(void* to) {
  __tsan_switch_to_fiber(to, 0);
}
#else
inline void* create_thread_sanitizer_fiber() {
  return nullptr;
}
inline void destroy_thread_sanitizer_fiber(void* /*fiber*/) {}
inline void* current_thread_sanitizer_fiber() {
  return nullptr;
}
inline void name_thread_sanitizer_fiber(void* /*fiber*/, const char* /*name*/) {}
inline void switch_thread_sanitizer_fiber(void* /*to*/) {}
#endif

}  // namespace far::fiber::sanitizers
