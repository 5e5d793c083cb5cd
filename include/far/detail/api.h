// Marks the symbols that our shared libraries export: libfarheap, and the one that `farheap run` preloads. Their code
// is compiled with hidden visibility, so that programs can neither call the rest of it nor replace it by symbols of
// their own.
#pragma once

#define FAR_API __attribute__((visibility("default")))

// Of a class that is FAR_API: a member that is not.
#define FAR_HIDDEN __attribute__((visibility("hidden")))

// Marks functions with long code that the library has. A checked build compiles them along with the program: the scopes
// of the library's are of the other kind (far/scope.h).
#if defined(FARHEAP_CHECKED)
#define FAR_LIBRARY_CODE inline
#else
#define FAR_LIBRARY_CODE
#endif
