// The C library's own memory, in programs that bring a malloc of their own.
//
// An executable that defines malloc (Lisp systems, browsers) gives it to the C library, too. What our threads ask of
// the C library would then come from the program's malloc: it may not be made for threads, and its memory may be far.
#pragma once

namespace far::preload {

// From now on, what the C library and the loader need for a thread of the runtime, or for one that is inside of it,
// comes from local memory, and all else from the program's malloc as before. Does nothing where the program has none of
// its own. To be called once, after find_c_library() and before threads are started.
void keep_runtime_out_of_programs_malloc() noexcept;

}  // namespace far::preload
