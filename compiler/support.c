/* Code that farheap-clang links to each program and library: how it finds the runtime, and the slow paths of what the
 * passes emit. Compiled by the same clang, for the calling convention. */
#include "support.h"

#include <dlfcn.h>
#include <far/detail/compiled.h>
#include <far/hint.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* How far ahead of the loop its streams are fetched. */
static const uint64_t window_bytes = 256 << 10;
/* By one memcpy() or memset(). */
static const uint64_t copied_at_once = 64 << 10;
/* A row of no more chunks is needed as a whole: perhaps there is no other report of it (chunks.cc). */
static const uint64_t row_chunks = 4;
/* A shorter walk is not worth a call of the runtime. */
static const uint64_t least_bytes = 16 << 10;

static const uint8_t nothing_to_do = 0;
HIDDEN struct far_compiled __farheap_compiled = {0, &nothing_to_do, &__farheap_compiled.mask, NULL};

SLOW_PATH void __farheap_guard(const void* address);
SLOW_PATH void __farheap_guard_written(const void* address);
SLOW_PATH void __farheap_guards(const void* first, const void* second, const void* third, const void* fourth,
                                uint64_t written, struct far_hint_site* site);
SLOW_PATH void __farheap_hot(const void* address, uint64_t write, struct far_hint_site* site);
SLOW_PATH uint64_t __farheap_read(const void* address, uint64_t bytes, struct far_hint_site* site);
struct far_walk;
SLOW_PATH void __farheap_stream(const struct far_walk* walk, uint64_t iterations, uint64_t rest, const char* first,
                                const char* second, const char* third);
HIDDEN void __farheap_copy(char* to, const char* from, uint64_t bytes);
HIDDEN void __farheap_move(char* to, const char* from, uint64_t bytes);
HIDDEN void __farheap_set(char* to, int value, uint64_t bytes);

/* Guards are counted together: they are passed nothing but the address, which leaves the caller its registers. */
static struct far_hint_site of_guards = {"guards of farheap-clang", 1, 0};

/* Apart from the short way of a page that is there, which then saves no registers: guards outside of loops come here
 * whenever a page has left, and those in loops have looked already.
 *
 * Like a trap, a guard does not mark the page as used: pages that are brought in so would be kept longer than others,
 * which costs a look-up of a hash map 6 to 12% more misses. */
__attribute__((preserve_most, cold, noinline)) static void bring_for_guard(const void* address, bool write) {
  const struct far_hint_view* const view = view_of(address);
  if (view == NULL) return;
  view->miss(address, 1, far_hint_pack((struct far_hint_options){.mutate = write, .sequential = true}), &of_guards);
}

SLOW_PATH void __farheap_guard(const void* address) {
  if (is_missing((uintptr_t)address)) bring_for_guard(address, false);
}

SLOW_PATH void __farheap_guard_written(const void* address) {
  if (is_missing((uintptr_t)address)) bring_for_guard(address, true);
}

/* Apart from the short way of pages that are marked, which then saves no registers. */
__attribute__((preserve_most, cold, noinline)) static void mark_hot(const void* address, uint64_t write,
                                                                    struct far_hint_site* site) {
  far_hint_view_here->miss(address, 1, far_hint_pack((struct far_hint_options){.mutate = write != 0}), site);
}

/* An access of a hot structure (FAR_HOT), after the first eviction. Unlike a guard, it marks the page as used. */
SLOW_PATH void __farheap_hot(const void* address, uint64_t write, struct far_hint_site* site) {
  const struct far_hint_view* const view = view_of(address);
  if (view == NULL || far_hint_is_ready(view, ((uintptr_t)address - view->base) >> 12, write != 0)) return;
  mark_hot(address, write, site);
}

/* A guard of -ffar-objects: what is read here, of 1, 2, 4 or 8 bytes, comes without its page, or else with it. The page
 * may change at any time; what the loads before this one saw, this one sees. */
SLOW_PATH uint64_t __farheap_read(const void* address, uint64_t bytes, struct far_hint_site* site) {
  uint64_t value = 0;
  if (__farheap_objects != NULL && __farheap_objects->read(&value, address, bytes) != 0) return value;
  const struct far_hint_view* const view = view_of(address);
  if (view != NULL) view->miss(address, 1, 0, site);
  return read_index(address, bytes, 0);
}

/* Apart from the short way of pages that are all here, which then saves no registers. All pages are on their way before
 * the first one is waited for. */
__attribute__((preserve_most, cold, noinline)) static void bring_for_guards(const void* first, const void* second,
                                                                            const void* third, const void* fourth,
                                                                            uint64_t written,
                                                                            struct far_hint_site* site) {
  const void* const addresses[] = {first, second, third, fourth};
  const struct far_hint_view* const view = far_hint_view_here;
  if (view == NULL) return;
  const void* missing[4];
  struct far_hint_options options[4];
  size_t count = 0;
  for (size_t i = 0; i < 4; ++i) {
    if ((uintptr_t)addresses[i] - view->base >= view->bytes || !is_missing((uintptr_t)addresses[i])) continue;
    missing[count] = addresses[i];
    options[count++] = (struct far_hint_options){.mutate = (written >> i & 1) != 0, .sequential = true};
  }
  for (size_t i = 1; i < count; ++i) {
    const struct far_hint_options later = {.mutate = options[i].mutate, .sequential = true, .prefetch = true};
    view->miss(missing[i], 1, far_hint_pack(later), site);
  }
  for (size_t i = 0; i < count; ++i) view->miss(missing[i], 1, far_hint_pack(options[i]), site);
}

/* Of up to four addresses, null for those that are not. Bit i of `written`: the ith will be written to. Of null and of
 * what is not in the far heap the table says nothing, which the slow way sorts out. */
SLOW_PATH void __farheap_guards(const void* first, const void* second, const void* third, const void* fourth,
                                uint64_t written, struct far_hint_site* site) {
  if (is_missing((uintptr_t)first) || is_missing((uintptr_t)second) || is_missing((uintptr_t)third) ||
      is_missing((uintptr_t)fourth)) {
    bring_for_guards(first, second, third, fourth, written, site);
  }
}

/* A range that begins at `position` and goes on by `bytes`, downwards if negative. */
static void announce(const struct far_hint_view* view, const char* position, int64_t bytes,
                     struct far_hint_options options, struct far_hint_site* site) {
  const char* const low = bytes < 0 ? position + bytes : position;
  if ((uintptr_t)low - view->base < view->bytes) view->miss(low, distance(bytes), far_hint_pack(options), site);
}

/* All of `rest_bytes` are going to be written before anybody reads them, upwards, and `chunk_bytes` of them now: their
 * pages need not come, and neither does the rest of the last one. What lies on a page with other bytes is left. */
static void overwrite(const struct far_hint_view* view, const char* position, int64_t chunk_bytes, int64_t rest_bytes,
                      struct far_hint_site* site) {
  const uintptr_t page = 4096;
  const uintptr_t chunk_end = ((uintptr_t)position + (uintptr_t)chunk_bytes + page - 1) & ~(page - 1);
  const uintptr_t end = (uintptr_t)position + (uintptr_t)rest_bytes;
  view->miss(position, (chunk_end < end ? chunk_end : end) - (uintptr_t)position, far_hint_overwrite, site);
}

/* Of a stream. */
enum { writes = 1, is_hot = 2, overwrites = 4 };

/* The loop is at `position` and will walk `rest_bytes`, of which `chunk_bytes` before the next call; negative ones lead
 * downwards. First what is farther away starts on its way, then what is needed now is waited for, and both without a
 * fault. Of a hot structure it is marked as used. */
static void tell_stream(const char* position, int64_t chunk_bytes, int64_t rest_bytes, bool begins, uint32_t kind,
                        struct far_hint_site* site) {
  const struct far_hint_view* const view = view_of(position);
  if (view == NULL || (begins && distance(rest_bytes) < least_bytes)) return;
  const bool mutates = (kind & writes) != 0;
  const struct far_hint_options later = {.mutate = mutates, .sequential = true, .prefetch = true};
  const struct far_hint_options now = {.mutate = mutates, .sequential = (kind & is_hot) == 0};
  const int64_t window = chunk_bytes < 0 ? -(int64_t)window_bytes : (int64_t)window_bytes;
  const int64_t seen = nearer(begins ? 0 : window - chunk_bytes, rest_bytes);
  const int64_t ahead = nearer(window, rest_bytes) - seen;
  if ((kind & overwrites) != 0) {
    overwrite(view, position, chunk_bytes, rest_bytes, site);
  } else if (ahead != 0) {
    announce(view, position + seen, ahead, later, site);
  }
  announce(view, position, chunk_bytes, now, site);
}

/* Up to three streams of a loop. */
struct far_walk {
  struct far_hint_site* site;
  uint64_t iterations; /* from report to report */
  struct {
    int32_t step_bytes; /* an iteration; 0: there is no such stream */
    uint32_t kind;      /* writes, is_hot, overwrites */
  } streams[3];
};

/* The loop has `rest` of its `iterations` left. Its streams begin at `first`, `second` and `third`. */
SLOW_PATH void __farheap_stream(const struct far_walk* walk, uint64_t iterations, uint64_t rest, const char* first,
                                const char* second, const char* third) {
  const char* const starts[] = {first, second, third};
  const uint64_t done = iterations - rest;
  if (done % walk->iterations != 0) return; /* the chunks of a loop that gathers are shorter */
  const bool is_row = iterations <= row_chunks * walk->iterations;
  if (is_row && done != 0) return;
  const uint64_t count = is_row || rest < walk->iterations ? rest : walk->iterations;
  for (size_t i = 0; i < 3 && walk->streams[i].step_bytes != 0; ++i) {
    const int64_t step = walk->streams[i].step_bytes;
    /* Downwards, a range ends behind its first element. */
    const char* const position = starts[i] + (int64_t)done * step + (step < 0 ? -step : 0);
    tell_stream(position, (int64_t)count * step, (int64_t)rest * step, done == 0, walk->streams[i].kind, walk->site);
  }
}

static uint64_t part_of(uint64_t rest) {
  return rest < copied_at_once ? rest : copied_at_once;
}

static struct far_hint_site of_copies = {"memcpy, memmove or memset", 1, 0};

typedef void* copy_call(void* to, const void* from, size_t bytes);

/* Apart from the short way of few bytes. The parts are made by the function that the program called: its own memcpy()
 * may be nothing but a call of memmove(), which brought it here, or the other way round. */
__attribute__((cold, noinline)) static void copy_far(char* to, const char* from, uint64_t bytes, copy_call* copy) {
  if ((uintptr_t)to - (uintptr_t)from < bytes || (uintptr_t)from - (uintptr_t)to < bytes) {
    copy(to, from, bytes);
    return;
  }
  for (uint64_t done = 0, part = 0; done < bytes; done += part) {
    part = part_of(bytes - done);
    tell_stream(from + done, (int64_t)part, (int64_t)(bytes - done), done == 0, 0, &of_copies);
    tell_stream(to + done, (int64_t)part, (int64_t)(bytes - done), done == 0, writes | overwrites, &of_copies);
    copy(to + done, from + done, part);
  }
}

__attribute__((cold, noinline)) static void set_far(char* to, int value, uint64_t bytes) {
  for (uint64_t done = 0, part = 0; done < bytes; done += part) {
    part = part_of(bytes - done);
    tell_stream(to + done, (int64_t)part, (int64_t)(bytes - done), done == 0, writes | overwrites, &of_copies);
    memset(to + done, value, part);
  }
}

/* Whether the runtime is to be told of so many bytes. */
static bool is_told(uint64_t bytes) {
  return __builtin_expect(bytes >= least_bytes, 0) &&
         __atomic_load_n(__farheap_compiled.has_evicted, __ATOMIC_RELAXED) != 0;
}

/* memcpy(), memmove() and memset(): of much memory, and after the first eviction, in chunks, of which the runtime is
 * told as of those of a loop. What is written to need not come. */
HIDDEN void __farheap_copy(char* to, const char* from, uint64_t bytes) {
  if (is_told(bytes)) return copy_far(to, from, bytes, memcpy);
  memcpy(to, from, bytes);
}

HIDDEN void __farheap_move(char* to, const char* from, uint64_t bytes) {
  if (is_told(bytes)) return copy_far(to, from, bytes, memmove);
  memmove(to, from, bytes);
}

HIDDEN void __farheap_set(char* to, int value, uint64_t bytes) {
  if (is_told(bytes)) return set_far(to, value, bytes);
  memset(to, value, bytes);
}

/* Blocks for FAR_LOCAL_DATA. They come from the runtime's heap if the program has no allocator of its own, because they
 * will be freed to the program's. */
struct local_heap {
  const char* instead_of;
  far_compiled_local_call* call;
  bool is_known;
};
static struct local_heap heap_of_c = {.instead_of = "malloc"};
static struct local_heap heap_of_cxx = {.instead_of = "_Znwm"};

static far_compiled_local_call* find_heap(struct local_heap* heap) {
  if (__atomic_load_n(&heap->is_known, __ATOMIC_ACQUIRE)) return heap->call;
  far_compiled_local_call* call = far_compiled_local;
  if (call == NULL) *(void**)(void*)&call = dlsym(NULL, "far_compiled_local");
  Dl_info used, runtime;
  void* const allocator = call != NULL ? dlsym(NULL, heap->instead_of) : NULL;
  const bool serves = allocator != NULL && dladdr(allocator, &used) != 0 &&
                      dladdr(*(void**)(void*)&call, &runtime) != 0 && used.dli_fbase == runtime.dli_fbase;
  heap->call = serves ? call : NULL;
  __atomic_store_n(&heap->is_known, true, __ATOMIC_RELEASE);
  return heap->call;
}

HIDDEN void* __farheap_local_malloc(size_t bytes);
HIDDEN void* __farheap_local_calloc(size_t count, size_t bytes);
HIDDEN void* __farheap_local_realloc(void* block, size_t bytes);
HIDDEN void* __farheap_local_aligned_alloc(size_t alignment, size_t bytes);
HIDDEN void* __farheap_local_new(size_t bytes);
__attribute__((weak)) void* _Znwm(size_t bytes);

HIDDEN void* __farheap_local_malloc(size_t bytes) {
  far_compiled_local_call* const heap = find_heap(&heap_of_c);
  return heap != NULL ? heap(NULL, _Alignof(max_align_t), bytes) : malloc(bytes);
}

HIDDEN void* __farheap_local_calloc(size_t count, size_t bytes) {
  far_compiled_local_call* const heap = find_heap(&heap_of_c);
  size_t all = 0;
  if (heap == NULL || __builtin_mul_overflow(count, bytes, &all)) return calloc(count, bytes);
  return heap(NULL, _Alignof(max_align_t), all);
}

HIDDEN void* __farheap_local_realloc(void* block, size_t bytes) {
  far_compiled_local_call* const heap = find_heap(&heap_of_c);
  return heap != NULL ? heap(block, _Alignof(max_align_t), bytes) : realloc(block, bytes);
}

HIDDEN void* __farheap_local_aligned_alloc(size_t alignment, size_t bytes) {
  far_compiled_local_call* const heap = find_heap(&heap_of_c);
  return heap != NULL ? heap(NULL, alignment, bytes) : aligned_alloc(alignment, bytes);
}

/* Operator new throws where there is no memory. */
HIDDEN void* __farheap_local_new(size_t bytes) {
  far_compiled_local_call* const heap = find_heap(&heap_of_cxx);
  void* const block = heap != NULL ? heap(NULL, _Alignof(max_align_t), bytes) : NULL;
  return block != NULL ? block : _Znwm(bytes);
}

/* The program's and each library's own. Before all other constructors of it, whose code has guards, and behind all
 * other destructors: the states that a guard looks at must not change while it runs. */
__attribute__((constructor(0))) static void join(void) {
  far_compiled_join_call* call = far_compiled_join;
  far_compiled_find_objects_call* find = far_compiled_find_objects;
  far_compiled_thread_memory_call* memory = far_compiled_thread_memory;
  far_hint_bind();
  if (find == NULL) *(void**)(void*)&find = dlsym(NULL, "far_compiled_find_objects");
  if (find != NULL) __farheap_objects = find();
  if (memory == NULL) *(void**)(void*)&memory = dlsym(NULL, "far_compiled_thread_memory");
  __farheap_thread_memory = memory;
  if (call == NULL) *(void**)(void*)&call = dlsym(NULL, "far_compiled_join");
  if (call != NULL) call(&__farheap_compiled);
}

__attribute__((destructor(0))) static void leave(void) {
  far_compiled_leave_call* call = far_compiled_leave;
  if (call == NULL) *(void**)(void*)&call = dlsym(NULL, "far_compiled_leave");
  if (call != NULL) call(&__farheap_compiled);
}
