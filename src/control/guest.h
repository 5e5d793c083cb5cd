// How the far::runtime objects of a program under `farheap run` share its budget. The run door is the host: it knows
// the budget of the process. The guest is a copy of libfarheap in the program. A few times a second it reports the
// memory and the counts of its runtimes, and learns how much memory they may hold together.
//
// The guest calls and is never called, because the host's threads must not touch memory of the program, where the guest
// is. The two are built apart, so only the types in this file cross between them.
#pragma once

#include <cstdint>

#include "engine/statistics.h"

namespace far::control {

// Grows with each change of guest_report, which contains engine::statistics.
inline constexpr std::uint32_t guest_interface = 2;
static_assert(sizeof(engine::statistics) == 34 * sizeof(std::uint64_t), "then guest_interface has to grow");

struct guest_report {
  std::uint32_t interface = guest_interface;
  std::uint32_t runtimes = 0;      // each needs the working minimum; 0: the guest leaves
  std::uint64_t wanted_bytes = 0;  // the sum of the budgets that the program chose: they never get more
  engine::statistics counted;      // sums
};

// The type of far_host_exchange, the symbol that a guest looks for. `number`: 0 the first time; the host then sets it.
// Returns the budget of the guest's runtimes together, at least the working minimum for each. 0: the host cannot take
// the guest, because it has another interface or too many guests.
using host_exchange = std::uint64_t(std::uint32_t* number, const guest_report* said);

// The misses that the software guard of a guest finds, for `farheap trace`: the hardware guard does not see them.
enum class guest_miss : std::uint32_t { read, write, first_touch };

// Records one, on the thread that missed, with the stack of its caller. It allocates nothing and touches no far memory.
using miss_recorder = void(const void* address, guest_miss kind);
// The type of far_host_miss_recorder, another symbol that a guest looks for. Returns null while nothing is traced,
// which does not change as long as the process lives.
using host_miss_recorder = miss_recorder*();

}  // namespace far::control
