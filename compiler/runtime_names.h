// Names and numbers that instrumented code and the support that is linked to it (support.c) have in common.
#pragma once

#include <cstddef>
#include <cstdint>

namespace far::compiler {

// struct far_compiled (far/detail/compiled.h): hidden, one for each program and library.
inline constexpr const char* shared_struct = "__farheap_compiled";
enum class field : unsigned { mask, states, has_evicted };
// Slow paths.
inline constexpr const char* guard_call = "__farheap_guard";
inline constexpr const char* written_guard_call = "__farheap_guard_written";
inline constexpr const char* guards_call = "__farheap_guards";
inline constexpr const char* hot_call = "__farheap_hot";
inline constexpr const char* read_call = "__farheap_read";
inline constexpr const char* stream_call = "__farheap_stream";
inline constexpr const char* column_call = "__farheap_column";
inline constexpr const char* gather_call = "__farheap_gather";
inline constexpr const char* look_call = "__farheap_look";
inline constexpr const char* ahead_call = "__farheap_ahead";
inline constexpr const char* copy_call = "__farheap_copy";
inline constexpr const char* move_call = "__farheap_move";
inline constexpr const char* set_call = "__farheap_set";

inline constexpr std::uint64_t page_bytes = 4096;
inline constexpr unsigned page_shift = 12;
// Streams that are told by one call; what is known of them before the loop runs is in a struct far_walk of support.c.
inline constexpr std::size_t walk_streams = 3;
// How often a stream reports how far the loop is.
inline constexpr std::uint64_t chunk_bytes = 64 << 10;
// State bytes up to this one need no call.
inline constexpr std::uint8_t last_quiet_state = 1;

// Of a look ahead that follows pointers, in place of the number of an access of its loop.
inline constexpr std::uint64_t number_of_followed = 4;

// In the kind of a look ahead: it is for objects that are read (far_compiled_objects of far/detail/compiled.h).
inline constexpr std::uint64_t looks_for_objects = 32;

// Of the program: how many bytes around an object are read (far/detail/compiled.h).
inline constexpr const char* object_bytes_name = "far_compiled_object_bytes";

// On an access of a gather that its loop reports: it needs no guard.
inline constexpr const char* told_metadata = "farheap.told";
// On the accesses of a copy of a loop that runs as long as no page has left: they need none, either.
inline constexpr const char* quiet_metadata = "farheap.quiet";

// On a function that has code of the passes from an earlier compilation.
inline constexpr const char* prepared_attribute = "farheap-prepared";
// On its accesses: the linker may inline them into a function that has none.
inline constexpr const char* prepared_metadata = "farheap.prepared";

// The kind of a gather. Bit 0: it writes; 1, set when the loop runs: it begins; 2: indices are signed; 3 and 4: which
// one of its loop it is; 8 to 15: the bytes of an index; 16 to 31: from one index to the next, signed; 32 to 63: bytes
// for each index, signed.
constexpr std::uint64_t pack_gather(bool write, std::uint64_t number, std::uint64_t index_bytes, bool is_signed,
                                    std::int64_t step_bytes, std::int32_t scale) {
  return (write ? 1u : 0u) | (is_signed ? 4u : 0u) | number << 3 | index_bytes << 8 |
         std::uint64_t{static_cast<std::uint16_t>(step_bytes)} << 16 |
         std::uint64_t{static_cast<std::uint32_t>(scale)} << 32;
}

}  // namespace far::compiler
