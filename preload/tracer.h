// Records the program's misses, and its large allocations, with their stacks (`farheap trace`; src/trace/format.h).
//
// Everything here does nothing unless the trace is on. Recording is done on the thread that misses or allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "control/guest.h"
#include "engine/statistics.h"
#include "pager/miss_observer.h"
#include "preload/settings.h"

namespace far::preload {

// Opens the file of this process, where the settings ask for one. Called once, before the pager is made.
[[nodiscard]] result<void> start_trace(const settings& chosen);

// The observer for the pager; nullptr when the trace is off.
[[nodiscard]] pager::miss_observer* trace_observer() noexcept;

// The program gets memory in the far heap, or gives it back. To be called by the functions that the program calls. They
// must not be inlined: the stack begins with their caller.
void trace_allocation(const void* address, std::size_t bytes) noexcept;
void trace_release(const void* address) noexcept;
// A far::runtime of the program has found that memory is missing (control/guest.h); likewise.
void trace_guest_miss(const void* address, control::guest_miss kind) noexcept;
// Whether the trace is on, for callers on hot paths.
extern bool trace_is_on;

// Writes the buffer and the list of mappings.
void write_trace() noexcept;
// The same now and then, without the list of mappings.
void write_buffered_trace() noexcept;
// At the end of the program, with the engine's counters.
void end_trace(const engine::statistics& counted) noexcept;

// Around fork(2): after the pager's own preparation, and before its work after it. A child has a file of its own.
void lock_trace_for_fork() noexcept;
void unlock_trace_in_parent() noexcept;
void resume_trace_in_child() noexcept;

}  // namespace far::preload
