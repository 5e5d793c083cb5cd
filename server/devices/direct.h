// Connections that lead to a device's process: how the server gives one to it, and how it learns of their calls.
//
//     client -> event loop: handshake, `direct` -> (the socket, over the process's own) -> the process: calls, replies
//
// The server neither sees nor delays the calls, so it cannot know how long one has taken. The process writes that into
// a file in memory before and after each call, and the server looks from time to time. A plugin that overwrites it, and
// hangs, is found later: its client repeats the call by the server, whose own deadline holds then.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/device.h"

namespace far::server {

// In place of a request's length on the process's own socket.
inline constexpr std::uint32_t hand_over_mark = 0xffff'ffff;  // a handover follows; two descriptors: socket, file
inline constexpr std::uint32_t end_direct_mark = 0xffff'fffe;
// A request follows, and how many of the window's bytes belong to it (4).
inline constexpr std::uint32_t in_window_mark = 0xffff'fffd;

inline constexpr std::size_t most_handed = 2;

struct handover {
  std::uint64_t cookie = 0;      // of the request that the process is to answer
  std::uint64_t device = 0;      // whose calls may come
  std::uint64_t longest_ns = 0;  // that a call may take
};

// In the file.
struct direct_calls {
  std::uint64_t call = 0;      // the number of the one under way; 0: there is none
  std::uint64_t until_ns = 0;  // the end of its time, by the monotonic clock
  static constexpr std::size_t outcomes = static_cast<std::size_t>(wire::last_device_outcome) + 1;
  std::array<std::uint64_t, outcomes> ended{};  // so many, by outcome
  std::uint64_t took_ns = 0;                    // together
};
inline constexpr std::size_t direct_calls_bytes = sizeof(direct_calls) + sizeof(std::uint64_t);

// With a check sum: the server may read while the process writes.
void encode(const direct_calls& from, std::span<std::byte, direct_calls_bytes> to);
[[nodiscard]] std::optional<direct_calls> decode_direct_calls(std::span<const std::byte, direct_calls_bytes> from);

}  // namespace far::server
