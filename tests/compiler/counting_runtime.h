// A runtime that stands in for the real one in programs of farheap-clang: it is told of every stream, every guard finds
// a state that wants a call, and each call clobbers what a function may clobber. It never moves memory, but spoils
// pages that are said to be overwritten. With COUNTING_RUNTIME_WAVERS in the environment each call changes what it
// says.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The bytes that streams said they need now, since the last reset_counts(): in all, and from where to where.
struct stream_counts {
  uint64_t calls;
  uint64_t now_bytes;
  uint64_t later_bytes;
  uint64_t written_calls;
  uint64_t spoiled_bytes;  // of whole pages that were going to be overwritten
  uintptr_t low;
  uintptr_t high;
  uint64_t guards;
  uint64_t marking;  // calls of guards and for gathers that mark the page as used
  uint64_t batched;  // pages that guards of a batch requested before they waited for the first one
  uint64_t objects;  // of -ffar-objects: reads,
  uint64_t copied;   // and objects that were named ahead
  // Of gathers: how often a page was named, how often to be written, and how many times each page was, by the lower
  // bits of its number.
  uint64_t gathered;
  uint64_t gathered_to_write;
  uint8_t gathered_pages[1 << 16];
};
extern struct stream_counts counted;
void reset_counts(void);
// Of all pages: 2, the state at the start, is missing, 1 resident.
void set_states(uint8_t state);
// 0: no page has left yet, so loops report nothing; 1 at the start.
extern volatile uint64_t has_evicted;

#ifdef __cplusplus
}
#endif
