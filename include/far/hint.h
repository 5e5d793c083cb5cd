/* far_hint: tells Farheap about an access before it happens (Eden, section 3.1). C11 and C++20, header only.
 *
 *     far_hint(&table[i]);                                        it will be read
 *     far_hint(row, .mutate = true, .size = row_bytes);           it will be written
 *     far_hint(&column[i], .read_ahead = 64, .sequential = true); a scan
 *     far_hint(&node[next], .prefetch = true);                    it will be read, but not yet
 *
 * Memory that is missing comes in now, without a trap into the kernel; a fiber lets others run meanwhile, and a
 * prefetch waits for nothing. A hint never changes a result: a wrong, late or misplaced one costs time only. It is
 * worth its place where `farheap trace` finds misses.
 *
 * The same binary runs without Farheap, where a hint is one predictable branch, and with it under `farheap run`, or
 * linked to the library. A hint about memory that is not far costs two branches. In a static program hints do nothing.
 */
#ifndef FAR_HINT_H
#define FAR_HINT_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define FAR_HINT_DEFAULT \
  {                      \
  }
extern "C" {
#else
#define FAR_HINT_DEFAULT
#endif

/* A hint reads nothing at its address: one about memory that is not initialised yet deserves no warning. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define FAR_HINT_ONLY_ADDRESS __attribute__((access(none, 1)))
#else
#define FAR_HINT_ONLY_ADDRESS
#endif

/* C++ wants the ones that are given in this order. */
struct far_hint_options {
  /* It will be written: its page becomes writable at once. */
  bool mutate FAR_HINT_DEFAULT;
  /* Bytes from the address on; 0 is the same as 1. */
  size_t size FAR_HINT_DEFAULT;
  /* Pages to fetch together with a missing one: those after it, or before it if negative. -64 to 64. */
  int read_ahead FAR_HINT_DEFAULT;
  /* 0 to 3. With the policy "priority", pages of higher ones leave first; 3 is for what is used once. */
  unsigned char eviction_priority FAR_HINT_DEFAULT;
  /* This line visits addresses in order: only the first visit of a page counts, and read_ahead goes on with it. That it
   * came by is no reason for a page to stay. */
  bool sequential FAR_HINT_DEFAULT;
  /* It will be used a little later: remote pages start on their way, and nobody waits. If the page was used lately, its
   * first line comes into the cache, as with __builtin_prefetch. */
  bool prefetch FAR_HINT_DEFAULT;
};

/* One for each line with a hint. */
struct far_hint_site {
  const char* file;
  unsigned line;
  unsigned number; /* in the runtime's list; 0 before the first call that reaches it */
};

/* The data that a hint looks at before it calls anything. Empty (no bytes) until the runtime has started. */
struct far_hint_view {
  uintptr_t base;     /* of the far heap */
  uintptr_t bytes;    /* of its addresses */
  const uint8_t* use; /* by page: *now when it was last used, 0 if it may be missing; the highest bit: writable */
  const uint8_t* now;
  /* In registers: options in memory would be stored before each check, beside which that is much. */
  FAR_HINT_ONLY_ADDRESS void (*miss)(const void* address, size_t size, uint64_t packed_options,
                                     struct far_hint_site* site);
};

/* For code that a compiler has looked at: all bytes are going to be written before anybody reads one of them, so the
 * pages that lie in the range as a whole come without their bytes. */
enum { far_hint_overwrite = 8 };

/* All but the size: bit 0 mutate, 1 sequential, 2 prefetch, 8 to 15 eviction_priority, 32 to 63 read_ahead. */
static inline uint64_t far_hint_pack(struct far_hint_options options) {
  return (uint64_t)(uint32_t)options.read_ahead << 32 | (uint64_t)options.eviction_priority << 8 |
         (options.prefetch ? 4u : 0u) | (options.sequential ? 2u : 0u) | (options.mutate ? 1u : 0u);
}

/* In the runtime, and nowhere without it. */
__attribute__((weak)) const struct far_hint_view* far_hint_find_view(void);

/* One for the whole program, and for each library with hints. */
__attribute__((weak, visibility("hidden"))) const struct far_hint_view* far_hint_view_here;

/* A program at a fixed address does not see through the weak symbol what is preloaded; dlsym() does. */
__attribute__((constructor)) static void far_hint_bind(void) {
  typedef const struct far_hint_view* (*finder)(void);
  if (far_hint_view_here != NULL) return;
  finder find = far_hint_find_view;
  if (find == NULL) *(void**)(void*)&find = dlsym(NULL, "far_hint_find_view");
  if (find != NULL) far_hint_view_here = find();
}

/* Whether the page was used lately, so that there is nothing to do. `page` is an index into the view's pages. */
static inline bool far_hint_is_ready(const struct far_hint_view* view, uintptr_t page, bool mutate) {
  const unsigned now = __atomic_load_n(view->now, __ATOMIC_RELAXED);
  const unsigned use = __atomic_load_n(&view->use[page], __ATOMIC_RELAXED);
  return (use & 0x7f) == now && use >> 7 >= (mutate ? 1u : 0u);
}

/* The rare part, out of the way of the program's own code. */
__attribute__((noinline, cold, unused)) static void far_hint_look(uintptr_t address, size_t size, uint64_t packed,
                                                                  struct far_hint_site* site) {
  const struct far_hint_view* const view = far_hint_view_here;
  if (view == NULL) return;
  const uintptr_t offset = address - view->base;
  if (offset >= view->bytes) return;
  uintptr_t page = offset >> 12;
  const uintptr_t last = (offset + (size > 1 ? size - 1 : 0)) >> 12;
  if (last - page < 16 && last < view->bytes >> 12) { /* more of them are not worth to look at one by one */
    while (far_hint_is_ready(view, page, (packed & 1) != 0)) {
      if (page++ == last) return;
    }
  }
  view->miss((const void*)address, size, packed, site);
}

static inline void far_hint_at(const void* address, struct far_hint_options options, uintptr_t* last_page,
                               struct far_hint_site* site) {
  if (options.sequential) {
    const uintptr_t page = (uintptr_t)address >> 12;
    if (__builtin_expect(*last_page == page, 1)) return;
    *last_page = page;
  } else {
    const struct far_hint_view* const view = far_hint_view_here;
    if (__builtin_expect(view == NULL, 1)) return;
    const uintptr_t offset = (uintptr_t)address - view->base;
    if (offset >= view->bytes) return;
    const bool on_one_page = options.size <= 0x1000 - (offset & 0xfff);
    if (__builtin_expect(on_one_page && far_hint_is_ready(view, offset >> 12, options.mutate), 1)) {
      if (options.prefetch) __builtin_prefetch(address);
      return;
    }
  }
  far_hint_look((uintptr_t)address, options.size, far_hint_pack(options), site);
}

/* Read through the thread's segment register: no call for its address, which a compiler might keep while a fiber goes
 * on on another thread. */
#define FAR_HINT_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) static __thread

/* far_hint(address), or far_hint(address, .option = value, ...). A statement. Each thread remembers the last page of
 * each line for itself: threads that shared it would take it from each other at every access. */
#define far_hint(address, ...)                                                                                 \
  do {                                                                                                         \
    static struct far_hint_site far_hint_site_here = {__FILE__, __LINE__, 0};                                  \
    FAR_HINT_THREAD_LOCAL uintptr_t far_hint_last_page_here = UINTPTR_MAX;                                     \
    const struct far_hint_options far_hint_options_here = {__VA_ARGS__};                                       \
    far_hint_at((const void*)(address), far_hint_options_here, &far_hint_last_page_here, &far_hint_site_here); \
  } while (0)

#ifdef __cplusplus
}
#endif

#endif
