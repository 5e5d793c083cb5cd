// The call "function": a memory server has a plugin's function look at pages (far/compute.h) instead of sending them.
//
//     offset  size
//     0       32    the plugin's name, zero-padded
//     32      32    its version, likewise; another one is refused
//     64      4     the number of the function in the plugin
//     68      4     the size of the elements that it looks at
//     72      4     the size of its results: a multiple of 8, from 8 to 512
//     76      4     the size of its arguments, at most 256
//     80      4     how long the call may take, in milliseconds; 0: as long as the server permits
//     84      4     zero
//     88      192   the secret of the hash
//     280     a     the arguments, padded with zeros to a multiple of 8
//     280+a   16 n  ranges, as in a read; each lies in one slot
//
// The result has for each range that of the function, and the hash of the pieces of the whole slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/page_reduction.h"
#include "wire/message.h"

namespace far::wire {

inline constexpr std::string_view function_call_name = "function";
// In place of a function: asks why the last call of the session for this plugin was refused. The result, for each
// range, is a text with zeros behind it. A server of an older release refuses this as well.
inline constexpr std::uint32_t why_number = 0xffff'ffff;
inline constexpr std::size_t function_bytes = 88 + page_hasher::secret_bytes;  // in front of the arguments
// In front of the ranges.
inline constexpr std::size_t most_function_bytes = function_bytes + detail::most_function_arguments;

// The payload of the call. Returns its length. Requires: of a function; room for it.
std::size_t encode_function(const page_reduction& asked, std::span<const range> ranges, std::uint32_t deadline_ms,
                            std::span<std::byte> to);

// In the server.
struct function_request {
  std::string_view plugin;
  std::string_view version;
  std::uint32_t number = 0;
  std::uint32_t element_bytes = 0;
  std::uint32_t result_bytes = 0;
  std::uint32_t deadline_ms = 0;
  std::span<const std::byte> arguments;
  page_hasher hash;
  batch ranges;
};
// Of a call's arguments, in place; nothing when they make no sense.
[[nodiscard]] std::optional<function_request> decode_function(std::span<const std::byte> arguments);

}  // namespace far::wire
