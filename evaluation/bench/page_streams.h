// Streams of page accesses to compare replacement policies on: made up, or out of the trace of a program.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "policy_replay.h"

namespace far::bench {

// Page p is drawn with a probability proportional to 1 / rank^exponent; ranks have nothing to do with addresses.
[[nodiscard]] page_stream popular_pages(std::uint32_t pages, std::size_t accesses, double exponent);
// Of four accesses three go to popular pages, one goes on in a walk over as many others.
[[nodiscard]] page_stream popular_pages_beside_a_walk(std::uint32_t pages, std::size_t accesses);
// Four times popular pages, each time others.
[[nodiscard]] page_stream shifting_popularity(std::uint32_t pages, std::size_t accesses);
[[nodiscard]] page_stream any_pages(std::uint32_t pages, std::size_t accesses);
[[nodiscard]] page_stream walk_again_and_again(std::uint32_t pages, std::size_t accesses);
// Breadth-first searches in a graph with few vertices of many edges: offsets, edges and marks in arrays of their own.
[[nodiscard]] page_stream graph_searches(std::uint32_t vertices);

// The misses of a traced program (`farheap trace`), pages numbered in the order in which they first come. A trace made
// with little local memory is the closest there is to all accesses. Errors: as trace::read_trace; no misses.
[[nodiscard]] result<page_stream> misses_of_trace(const std::string& path);

}  // namespace far::bench
