/* What the parts of the support have in common (support.c, lookahead.c). */
#ifndef FAR_COMPILER_SUPPORT_H
#define FAR_COMPILER_SUPPORT_H

#include <far/detail/compiled.h>
#include <far/hint.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HIDDEN __attribute__((visibility("hidden")))
/* Callers keep their registers: they are in the middle of a loop. */
#define SLOW_PATH HIDDEN __attribute__((preserve_most, cold, noinline))

extern HIDDEN struct far_compiled __farheap_compiled;
extern HIDDEN const struct far_compiled_objects* __farheap_objects;
extern HIDDEN far_compiled_thread_memory_call* __farheap_thread_memory;

static inline const struct far_hint_view* view_of(const void* address) {
  const struct far_hint_view* const view = far_hint_view_here;
  return view != NULL && (uintptr_t)address - view->base < view->bytes ? view : NULL;
}

/* As a guard does it: for an address of the far heap. */
static inline bool is_missing(uintptr_t address) {
  return __farheap_compiled.states[address >> 12 & __farheap_compiled.mask] > 1;
}

/* Of 1, 2, 4 or 8 bytes; `sign`: the bit of a number's sign, or 0 for one that has none. */
static inline uint64_t read_index(const char* at, uint64_t bytes, uint64_t sign) {
  uint64_t bits = 0;
  if (bytes == 4) {
    uint32_t half; /* of fixed sizes, so that none becomes a call */
    memcpy(&half, at, 4);
    bits = half;
  } else if (bytes == 8) {
    memcpy(&bits, at, 8);
  } else {
    memcpy(&bits, at, 1);
    if (bytes == 2) memcpy(&bits, at, 2);
  }
  return (bits ^ sign) - sign;
}

static inline uint64_t distance(int64_t bytes) {
  return bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
}

static inline int64_t nearer(int64_t some, int64_t others) {
  return distance(some) < distance(others) ? some : others;
}

#endif
