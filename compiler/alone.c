/* In place of support.c in what is linked without the C library. There is never a runtime, so nothing calls the slow
 * paths; they exist to be linked to. */
#include <far/detail/compiled.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define SLOW_PATH HIDDEN __attribute__((preserve_most, cold, noinline))

static const uint8_t nothing_to_do = 0;
HIDDEN struct far_compiled __farheap_compiled = {0, &nothing_to_do, &__farheap_compiled.mask, NULL};

SLOW_PATH void __farheap_guard(void);
SLOW_PATH void __farheap_guards(void);
SLOW_PATH void __farheap_stream(void);
SLOW_PATH void __farheap_gather(void);
SLOW_PATH uint64_t __farheap_look(void);
SLOW_PATH void __farheap_ahead(void);

SLOW_PATH void __farheap_guard(void) {}
SLOW_PATH void __farheap_guards(void) {}
SLOW_PATH void __farheap_stream(void) {}
SLOW_PATH void __farheap_gather(void) {}
SLOW_PATH uint64_t __farheap_look(void) {
  return 0;
}
SLOW_PATH void __farheap_ahead(void) {}
