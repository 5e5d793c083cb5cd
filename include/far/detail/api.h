// Marks the symbols that our shared libraries export: libfarheap, and the one that `farheap run` preloads. Their code
// is compiled with hidden visibility, so that nothing else of it can be reached from outside, or be taken for a part
// of the program.
#pragma once

#define FAR_API __attribute__((visibility("default")))
