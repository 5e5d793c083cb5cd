// Why a connection ended.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace far::server {

enum class close_reason : std::uint8_t {
  none,            // it has not
  peer_gone,       // the client closed it, or it broke
  session_closed,  // the client closed its session
  handed_over,     // the process of a device has it now
  fenced,          // a newer connection of the channel, or the end of the session
  refused,         // the handshake: wrong token, unknown session, no common version
  throttled,       // too many wrong tokens from its address
  late_handshake,  // half-open for too long
  malformed,       // bad length, bad header, unknown opcode, a message out of order
  foreign_slot,    // a slot that the session has not allocated
  slow_sender,     // a message that does not come to its end
  slow_reader,     // replies that nobody reads
  silent,          // not even a ping
  insecure,        // TLS failed
  stopped,         // the server stopped
};
inline constexpr std::size_t close_reasons = static_cast<std::size_t>(close_reason::stopped) + 1;

// For the log and for metrics.
[[nodiscard]] constexpr const char* name_of(close_reason reason) {
  constexpr std::array<const char*, close_reasons> names{
      "none",      "peer_gone",    "session_closed", "handed_over", "fenced", "refused",  "throttled", "late_handshake",
      "malformed", "foreign_slot", "slow_sender",    "slow_reader", "silent", "insecure", "stopped"};
  return names[static_cast<std::size_t>(reason)];
}

// Whether a correct client would not have caused it.
[[nodiscard]] constexpr bool is_misbehaviour(close_reason reason) {
  return reason >= close_reason::refused && reason <= close_reason::insecure;
}

}  // namespace far::server
