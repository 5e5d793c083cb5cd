/* For programs that are compiled by farheap-clang (docs/compile.md). C11 and C++20; other compilers ignore it.
 *
 *     FAR_LOCAL int checksum(const char* packet, size_t bytes);       one function
 *
 *     FAR_LOCAL_BEGIN                                                 all that are defined from here
 *     ...
 *     FAR_LOCAL_END                                                   to here
 *
 * The function's accesses are mostly of memory that is local: it gets no guards and tells of no streams, and is not
 * inlined into one that does. That is about cost alone. If memory is far after all, the access traps, as in a program
 * that was compiled by any other compiler. */
#ifndef FAR_LOCAL_H
#define FAR_LOCAL_H

#if defined(__clang__)
#define FAR_LOCAL __attribute__((annotate("far_local"), noinline))
#define FAR_LOCAL_BEGIN \
  _Pragma("clang attribute push(__attribute__((annotate(\"far_local\"), noinline)), apply_to = function)")
#define FAR_LOCAL_END _Pragma("clang attribute pop")
#else
#define FAR_LOCAL
#define FAR_LOCAL_BEGIN
#define FAR_LOCAL_END
#endif

#endif
