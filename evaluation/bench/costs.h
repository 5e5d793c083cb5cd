// What a program's use of a memory server costs, besides time.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace far::bench {

// The bytes that the TCP connections which this process has open have carried so far, both ways, without headers of
// packets.
[[nodiscard]] std::uint64_t open_connections_bytes();

// User and system time of all threads of a process; 0: it is gone. And of its living descendants as well.
[[nodiscard]] std::uint64_t cpu_ns_of(pid_t process);
[[nodiscard]] std::uint64_t cpu_ns_with_descendants(pid_t process);

}  // namespace far::bench
