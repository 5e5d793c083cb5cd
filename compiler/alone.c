/* In place of support.c in what is linked without the C library. There is never a runtime, so nothing calls the slow
 * paths; they exist to be linked to. */
#include <far/detail/compiled.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define SLOW_PATH HIDDEN __attribute__((preserve_most, cold, noinline))

static const uint8_t nothing_to_do = 0;
HIDDEN struct far_compiled __farheap_compiled = {0, &nothing_to_do, &__farheap_compiled.mask, NULL};

SLOW_PATH void __farheap_guard(void);
SLOW_PATH void __farheap_guard_written(void);
SLOW_PATH void __farheap_guards(void);
SLOW_PATH void __farheap_hot(void);
SLOW_PATH uint64_t __farheap_read(void);
SLOW_PATH void __farheap_stream(void);
SLOW_PATH void __farheap_column(void);
SLOW_PATH void __farheap_gather(void);
SLOW_PATH uint64_t __farheap_look(void);
SLOW_PATH void __farheap_ahead(void);

SLOW_PATH void __farheap_guard(void) {}
SLOW_PATH void __farheap_guard_written(void) {}
SLOW_PATH void __farheap_guards(void) {}
SLOW_PATH void __farheap_hot(void) {}
SLOW_PATH uint64_t __farheap_read(void) {
  return 0;
}
SLOW_PATH void __farheap_stream(void) {}
SLOW_PATH void __farheap_column(void) {}
SLOW_PATH void __farheap_gather(void) {}
SLOW_PATH uint64_t __farheap_look(void) {
  return 0;
}
SLOW_PATH void __farheap_ahead(void) {}

/* Of programs with such calls of their own: the passes keep a reference to each that they replace (emit.h). */
__attribute__((weak)) void* memcpy(void* restrict to, const void* restrict from, size_t bytes);
__attribute__((weak)) void* memmove(void* to, const void* from, size_t bytes);
__attribute__((weak)) void* memset(void* to, int value, size_t bytes);
HIDDEN void __farheap_copy(void* to, const void* from, size_t bytes);
HIDDEN void __farheap_move(void* to, const void* from, size_t bytes);
HIDDEN void __farheap_set(void* to, int value, size_t bytes);

HIDDEN void __farheap_copy(void* to, const void* from, size_t bytes) {
  memcpy(to, from, bytes);
}
HIDDEN void __farheap_move(void* to, const void* from, size_t bytes) {
  memmove(to, from, bytes);
}
HIDDEN void __farheap_set(void* to, int value, size_t bytes) {
  memset(to, value, bytes);
}

/* And with allocation calls. */
__attribute__((weak)) void* malloc(size_t bytes);
__attribute__((weak)) void* calloc(size_t count, size_t bytes);
__attribute__((weak)) void* realloc(void* block, size_t bytes);
__attribute__((weak)) void* aligned_alloc(size_t alignment, size_t bytes);
__attribute__((weak)) void* _Znwm(size_t bytes);
HIDDEN void* __farheap_local_malloc(size_t bytes);
HIDDEN void* __farheap_local_calloc(size_t count, size_t bytes);
HIDDEN void* __farheap_local_realloc(void* block, size_t bytes);
HIDDEN void* __farheap_local_aligned_alloc(size_t alignment, size_t bytes);
HIDDEN void* __farheap_local_new(size_t bytes);

HIDDEN void* __farheap_local_malloc(size_t bytes) {
  return malloc(bytes);
}
HIDDEN void* __farheap_local_calloc(size_t count, size_t bytes) {
  return calloc(count, bytes);
}
HIDDEN void* __farheap_local_realloc(void* block, size_t bytes) {
  return realloc(block, bytes);
}
HIDDEN void* __farheap_local_aligned_alloc(size_t alignment, size_t bytes) {
  return aligned_alloc(alignment, bytes);
}
HIDDEN void* __farheap_local_new(size_t bytes) {
  return _Znwm(bytes);
}
