// Names and numbers that instrumented code and the support that is linked to it (support.c) have in common.
#pragma once

#include <cstdint>

namespace far::compiler {

// struct far_compiled (far/detail/compiled.h): hidden, one for each program and library.
inline constexpr const char* shared_struct = "__farheap_compiled";
enum class field : unsigned { mask, states, streams };
// Slow paths.
inline constexpr const char* guard_call = "__farheap_guard";
inline constexpr const char* stream_call = "__farheap_stream";

inline constexpr std::uint64_t page_bytes = 4096;
inline constexpr unsigned page_shift = 12;
// How often a stream reports how far the loop is.
inline constexpr std::uint64_t chunk_bytes = 64 << 10;
// State bytes up to this one need no call.
inline constexpr std::uint8_t last_quiet_state = 1;

}  // namespace far::compiler
