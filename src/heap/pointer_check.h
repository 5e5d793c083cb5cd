// Whether the far pointers in an object are those that its type declares (far::pointers_of), in checked builds.
#pragma once

#include <cstdint>

#include "far/detail/pointer.h"
#include "heap/hazard_log.h"

namespace far::heap {

// Stops the program with a message that names the type if its pointers_of leaves out a far pointer of the object, names
// one twice, or names something outside the object. A pointer is known by its own object, whose header names it; so one
// whose object is remote or larger than a page is not missed. Does nothing for an object that is dead or not resident.
// Requires: nobody changes the object meanwhile; `work` is the caller's.
void check_pointers(detail::object_heap& in, hazard_log& work, std::uintptr_t object);

}  // namespace far::heap
