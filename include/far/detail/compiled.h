/* The interface between code of farheap-clang and the runtime. C11 and C++20; internal: programs do not include it.
 *
 * A program and each library that farheap-clang links has one far_compiled, which it hands to the runtime when it is
 * loaded. Instrumented code reads it at each guard, so that a guard takes no branch more to find out whether there is a
 * runtime: without one, the mask selects the only byte of a table that says "nothing to do". */
#ifndef FAR_DETAIL_COMPILED_H
#define FAR_DETAIL_COMPILED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct far_compiled {
  uint64_t mask;               /* states[address >> 12 & mask] is the state of the page */
  const uint8_t* states;       /* 0, 1: nothing to do; above: call the runtime */
  const uint64_t* has_evicted; /* *has_evicted: 0 until the runtime wants to be told of streams and gathers, because a
                                  page has left; then it grows with each batch of up to 64 pages that leave. Without a
                                  runtime it leads to the mask, which is 0 */
  struct far_compiled* next;
};

/* Of code that was compiled with -ffar-objects: small objects of remote pages are read without their pages. */
struct far_compiled_objects {
  /* Reads up to 8 bytes. 0: the code accesses them itself, which brings their page. */
  int (*read)(uint64_t* value, const void* address, size_t bytes);
  /* So many objects will be read: their copies are made side by side. Returns how many there were none of, or
   * far_compiled_no_copies where the runtime keeps none, so that their pages had better come. */
  size_t (*make_copies)(const void* const* addresses, size_t count);
};
enum { far_compiled_most_copies = 64 }; /* by one call */
#define far_compiled_no_copies SIZE_MAX
typedef const struct far_compiled_objects* far_compiled_find_objects_call(void);
__attribute__((weak)) const struct far_compiled_objects* far_compiled_find_objects(void);
/* So many bytes of the calling thread, zeros at first: what it remembers of the loops that it is in. All programs and
 * libraries share them, since the C library keeps little room for variables of threads in libraries that are opened
 * late. So what is there may be another one's, of another release too, and it must be harmless to believe it. */
enum { far_compiled_thread_bytes = 704 };
typedef void* far_compiled_thread_memory_call(void);
__attribute__((weak)) void* far_compiled_thread_memory(void);
/* In the program, or in a library that it is linked to: how many bytes around an object are read. The runtime looks for
 * it when it starts, and serves no objects if it is not there. */
__attribute__((weak, visibility("default"))) extern const uint32_t far_compiled_object_bytes;

/* In the run door's runtime. Between the two, the runtime writes to `joining` whenever it begins or ceases to serve;
 * the first begins with the present state. Neither takes a lock that a fork or a signal could leave behind. */
typedef void far_compiled_join_call(struct far_compiled* joining);
typedef void far_compiled_leave_call(struct far_compiled* leaving);
/* A block of zeros that stays local, or `block`, of any allocation call, made `bytes` long; one that was far may stay
 * so where it fits. For what a program allocates for FAR_LOCAL_DATA of far/local.h. It is freed as any block is. Null
 * with errno if there is no memory. */
typedef void* far_compiled_local_call(void* block, size_t alignment, size_t bytes);
__attribute__((weak)) void* far_compiled_local(void* block, size_t alignment, size_t bytes);
__attribute__((weak)) void far_compiled_join(struct far_compiled* joining);
__attribute__((weak)) void far_compiled_leave(struct far_compiled* leaving);

#ifdef __cplusplus
}
#endif

#endif
