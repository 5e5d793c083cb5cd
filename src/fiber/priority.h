// The order in which workers run fibers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace far::fiber {

// First those that are inside a scope, because eviction and evacuation wait for scopes to end; then the evictor and the
// evacuator, because fibers without memory wait for them; then the rest (AIFM, section 5.4). A fiber is `in_scope` by
// entering one (identity.h); the other two are given when it is spawned.
enum class priority : std::uint8_t { in_scope, runtime, normal };

inline constexpr std::size_t priorities = 3;

}  // namespace far::fiber
