/* For programs that are compiled by farheap-clang (docs/compile.md). C11 and C++20; other compilers ignore the macros.
 *
 *     FAR_LOCAL int checksum(const char* packet, size_t bytes);       one function
 *
 *     FAR_LOCAL_BEGIN                                                 all that are defined from here
 *     ...
 *     FAR_LOCAL_END                                                   to here
 *
 * The function's accesses are mostly of memory that is local: it gets no guards and tells of no streams, and is not
 * inlined into one that does. Static variables in between are FAR_LOCAL_DATA.
 *
 *     FAR_LOCAL_DATA static struct job* running;                      a variable, static or not, or an argument
 *     struct table { FAR_LOCAL_DATA long* counts; };                  a member
 *
 * What the pointer leads to is local: accesses by way of it get neither guards nor streams, and what is allocated for
 * it, as by `running = malloc(n)`, comes from local memory, which does not count in the budget of `farheap run`. So do
 * calloc(), realloc(), aligned_alloc() and `new`; a warning names other allocations. Memory that is far after all
 * traps, as in a program that was compiled by any other compiler.
 *
 *     FAR_FAR int find(const struct table* in, long key);             the opposite
 *
 * Mostly a caller has used an object before it passes it on, and the function does without guards for it. Those of a
 * FAR_FAR function are guarded.
 *
 *     struct node { long key; struct node* next; };
 *     FAR_HOT_TYPE(struct node);                                      accesses of all members of a type
 *     struct text { FAR_HOT long bytes; char at[200]; };              accesses of a member
 *     FAR_HOT static struct index* names;                             what a pointer leads to: static, local, argument
 *     FAR_HOT static long counts[4096];                               a static array or structure
 *     FAR_HOT_BEGIN ... FAR_HOT_END                                   all members and static variables in between
 *
 * Hot structures: each access marks its page as used, and pages in use leave last. Mark what is small and used all the
 * time, beside data that comes and goes; where everything is hot, nothing is. The type of FAR_HOT_TYPE is complete, and
 * no union. Static variables are marked where they are defined, and only accesses in that file know it. The compiler
 * warns of marks that do nothing (-Wno-backend-plugin hides it). */
#ifndef FAR_LOCAL_H
#define FAR_LOCAL_H

#include <stddef.h>
#include <sys/mman.h>

#if defined(__clang__)
#define FAR_LOCAL __attribute__((annotate("far_local"), noinline))
#define FAR_LOCAL_DATA __attribute__((annotate("far_local")))
#define FAR_DETAIL_LOCAL_MEMORY __attribute__((annotate("far_local_memory")))
#define FAR_FAR __attribute__((annotate("far_far"), noinline))
#define FAR_DETAIL_PRAGMA(...) _Pragma(#__VA_ARGS__)
#define FAR_LOCAL_BEGIN                                                                 \
  FAR_DETAIL_PRAGMA(clang attribute push(__attribute__((annotate("far_local_region"))), \
                                         apply_to = any(function, variable(is_global))))
#define FAR_LOCAL_END _Pragma("clang attribute pop")
#define FAR_HOT __attribute__((annotate("far_hot")))
#define FAR_HOT_BEGIN \
  _Pragma("clang attribute push(__attribute__((annotate(\"far_hot\"))), apply_to = any(field, variable(is_global)))")
#define FAR_HOT_END _Pragma("clang attribute pop")
/* A step over one object, which farheap-clang reads and takes out. */
#define FAR_HOT_TYPE(...) FAR_DETAIL_HOT_TYPE(FAR_DETAIL_NAME(far_detail_hot_type_, __COUNTER__), __VA_ARGS__)
#define FAR_DETAIL_HOT_TYPE(name, ...)                                                                  \
  __attribute__((annotate("far_hot_type"), used, noinline)) static __VA_ARGS__* name(__VA_ARGS__* at) { \
    return at + 1;                                                                                      \
  }                                                                                                     \
  FAR_DETAIL_STATEMENT
#define FAR_DETAIL_NAME(begin, number) FAR_DETAIL_JOINED(begin, number)
#define FAR_DETAIL_JOINED(begin, number) begin##number
#else
#define FAR_LOCAL
#define FAR_LOCAL_DATA
#define FAR_DETAIL_LOCAL_MEMORY
#define FAR_FAR
#define FAR_LOCAL_BEGIN
#define FAR_LOCAL_END
#define FAR_HOT
#define FAR_HOT_BEGIN
#define FAR_HOT_END
#define FAR_HOT_TYPE(...) FAR_DETAIL_STATEMENT
#endif
/* What a semicolon may follow, outside of functions, and which does nothing. */
#ifdef __cplusplus
#define FAR_DETAIL_STATEMENT static_assert(true, "")
#else
#define FAR_DETAIL_STATEMENT _Static_assert(1, "")
#endif

/* Strict C11 has no anonymous mappings: compile with -std=gnu11, or define _DEFAULT_SOURCE. */
#if defined(MAP_ANONYMOUS) && defined(MAP_STACK)
#ifdef __cplusplus
extern "C" {
#endif

/* Memory that stays local for as long as it lives, whatever compiler is used: `farheap run` leaves it alone, and does
 * not count it in the budget. Whole pages, zeros; null with errno set if there is no memory. farheap-clang neither
 * guards nor streams accesses to it, where it sees that they are. Not inline, so that it does. */
FAR_DETAIL_LOCAL_MEMORY __attribute__((noinline, unused, malloc)) static void* far_local_allocate(size_t bytes) {
  void* const place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  return place != MAP_FAILED ? place : NULL;
}

/* `place`: of far_local_allocate(), with the same number of bytes; or null. */
__attribute__((unused)) static void far_local_free(void* place, size_t bytes) {
  if (place != NULL) munmap(place, bytes);
}

#ifdef __cplusplus
}
#endif
#endif

#endif
