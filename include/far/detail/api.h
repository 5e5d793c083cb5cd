// Marks the symbols that our shared libraries export: libfarheap, and the one that `farheap run` preloads. Their code
// is compiled with hidden visibility, so that programs can neither call the rest of it nor replace it by symbols of
// their own.
#pragma once

#define FAR_API __attribute__((visibility("default")))
