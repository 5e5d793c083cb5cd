// A device as the server sees it: calls go in, and their replies come out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "server/devices/direct.h"

namespace far::server {

// When a call is looked at again: after a share of the time that it has taken already.
[[nodiscard]] constexpr std::uint64_t pause_ns(std::uint64_t taken_ns) {
  constexpr std::uint64_t shortest_ns = 10'000;
  constexpr std::uint64_t longest_ns = 2'000'000;
  constexpr std::uint64_t share = 16;
  return std::clamp(taken_ns / share, shortest_ns, longest_ns);
}

// A process (process.h), or in a simulation an object of its own. Ends the device with itself. Not thread-safe.
class device_body {
 public:
  device_body() = default;
  virtual ~device_body() = default;
  device_body(const device_body&) = delete;
  device_body& operator=(const device_body&) = delete;

  // Begins a call. `encoded`: as the client has sent it. Requires: no call is under way.
  virtual void begin(std::span<const std::byte> encoded, std::uint64_t now_ns, std::uint64_t deadline_ns) = 0;

  // Memory that its process can read, for the arguments of a call; empty if there is none. They are not to be changed
  // while the call is under way.
  [[nodiscard]] virtual std::span<std::byte> window() { return {}; }
  // The same as begin(); the request's bytes are the first of the window. Requires: it has so many.
  virtual void begin_in_window(std::span<const std::byte> encoded, std::size_t bytes, std::uint64_t now_ns,
                               std::uint64_t deadline_ns) {
    static_cast<void>(bytes);
    begin(encoded, now_ns, deadline_ns);
  }

  enum class state : std::uint8_t { waiting, replied, timed_out, crashed };
  // Goes on as far as that is possible now. Never waits.
  [[nodiscard]] virtual state advance(std::uint64_t now_ns) = 0;
  // The whole encoded reply. Requires: replied. Valid until the next begin().
  [[nodiscard]] virtual std::span<const std::byte> reply() const = 0;

  // It has ended by itself. Its process, if it has one, is there until we are destroyed, so that nobody else gets its
  // number.
  [[nodiscard]] virtual bool has_ended() const = 0;

  // Whether it can have a connection of its client.
  [[nodiscard]] virtual bool can_be_direct() const { return false; }
  // Gives it a copy of this socket, in place of one that it had. False: it has not got it. Requires: no call is under
  // way.
  [[nodiscard]] virtual bool hand_over(int socket, const handover& agreed) {
    return static_cast<void>(socket), static_cast<void>(agreed), false;
  }
  // It closes the connection that it has. Requires: no call is under way.
  virtual void end_direct() {}
  // What it says about the calls that come over it; nothing: it never had one. Not to be trusted.
  [[nodiscard]] virtual std::optional<direct_calls> direct() const { return std::nullopt; }
};

}  // namespace far::server
