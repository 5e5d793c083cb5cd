// Plays a stream of accesses to pages against a replacement policy of the engine, and against the two that no program
// can have without help: LRU, which sees every access, and the optimum, which knows the future.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace far::bench {

// Pages are numbered from 0, without holes.
using page_stream = std::vector<std::uint32_t>;

[[nodiscard]] std::uint32_t distinct_pages(const page_stream& stream);

// Each returns the misses with so many frames, first touches among them. Requires: frames > 0.

// A policy of the engine (engine/policy.h), which sees what it sees under the hardware guard: nothing of accesses to
// resident pages. Errors: no such policy.
[[nodiscard]] result<std::uint64_t> misses_under(std::string_view policy, const page_stream& stream,
                                                 std::uint32_t frames);
[[nodiscard]] std::uint64_t misses_under_lru(const page_stream& stream, std::uint32_t frames);
// Belady's: the page that is needed again last leaves first.
[[nodiscard]] std::uint64_t least_misses(const page_stream& stream, std::uint32_t frames);

}  // namespace far::bench
