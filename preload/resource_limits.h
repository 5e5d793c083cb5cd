// The limits on address space and data that the program sets for itself (setrlimit): see platform/program_limits.h.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstddef>
#include <optional>

#include "pager/pager.h"

namespace far::preload {

// When the runtime starts, before it maps memory.
void measure_start() noexcept;

// From now on the program's limits are apart from the kernel's. To be called once, when all of the runtime has started.
void serve_limits(pager::pager& pager) noexcept;

// If the program's memory is limited, what it frees is given back at once from now on. To be called now and then, since
// another process may limit it.
void give_back_under_limit() noexcept;

// Before a call that makes this process another program, which gets the limits as they are meant; also in the child of
// a vfork. Returns whether the second is due if the call fails. May be nested.
[[nodiscard]] bool limits_before_exec() noexcept;
void limits_after_exec() noexcept;

// Whether a call about a limit is about one that is apart. All others are the kernel's.
[[nodiscard]] bool is_own_limit(pid_t process, int kind) noexcept;

// The limit of this process, if it is apart from the kernel's; and whether there may be one. In the child of a vfork
// its own.
[[nodiscard]] std::optional<rlimit> limit_in_effect(int kind) noexcept;
[[nodiscard]] bool limits_differ() noexcept;

// As prlimit(2) and its older relatives for these: 0, or -1 and errno. The child of a vfork has limits of its own.
int change_limit(int kind, const rlimit* wanted, rlimit* before) noexcept;

// Whether the program's limit on address space leaves room for so much more in the far heap, which the kernel does not
// count. Else errno is ENOMEM.
[[nodiscard]] bool has_addresses_for(std::size_t more_bytes) noexcept;

}  // namespace far::preload
