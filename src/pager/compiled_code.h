// The runtime's side of far/detail/compiled.h: programs and libraries of farheap-clang, and the data that their guards
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "far/detail/compiled.h"
#include "pager/page_guard.h"

namespace far::pager {

// From now on the guards of the process check this pager's far heap, if it keeps its states by address
// (options::states_by_address), and streams go to the part that serves hints (hints.h). Once in a process; the pager
// stays to its end. `others_run`: threads of the program may be in code that has joined, which then goes without
// guards, because the compiler takes their data as constant while a function runs.
void serve_compiled_code(page_guard& guard, bool others_run);

// The work of far_compiled_join() and far_compiled_leave(). A lock is held for a few instructions, with signals
// blocked; the child of a fork must not find it taken: see lock_compiled_code_for_fork().
void join_compiled_code(far_compiled& joining);
void leave_compiled_code(const far_compiled& leaving);

// The work of far_compiled_find_objects(), by page_guard::find_copy() and its siblings. Before a pager serves, and
// without options::copied_bytes, there are no copies. But for the first two, for threads whose stack is local.
[[nodiscard]] bool keeps_objects();
[[nodiscard]] copy_lookup find_object(std::uint64_t& value, const void* address, std::size_t bytes);
[[nodiscard]] bool bring_object(std::uint64_t& value, const void* address, std::size_t bytes);
[[nodiscard]] std::size_t copy_objects(std::span<const void* const> addresses);

// Around a fork. Nothing is taken in between.
void lock_compiled_code_for_fork();
void unlock_compiled_code_after_fork();

}  // namespace far::pager
