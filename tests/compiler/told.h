// A runtime that stands in for the real one in programs of farheap-clang: it is told of every stream, every guard finds
// a state that wants a call, and each call clobbers what a function may clobber. It never moves memory.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The bytes that streams said they need now, since the last told_reset(): in all, and from where to where.
struct told {
  uint64_t calls;
  uint64_t now_bytes;
  uint64_t later_bytes;
  uint64_t written_calls;
  uintptr_t low;
  uintptr_t high;
  uint64_t guards;
};
extern struct told told_of;
void told_reset(void);

#ifdef __cplusplus
}
#endif
