// Where client and server of `shm:NAME` meet: a UNIX-domain socket. It carries the handshake, the descriptors of shared
// memory, and one byte to wake the other side. Its end shows the end of the other side.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace far::wire {

// A name: letters, digits, '-', '_' and '.', 1 to 64 of them, not beginning with '.'; or a path, which contains a '/'.
[[nodiscard]] result<void> check_server_name(std::string_view name);

// The paths where a server of that name may listen, the best one first: $XDG_RUNTIME_DIR/farheap/, /run/farheap/,
// /tmp/farheap-UID/. A path is the only place itself.
[[nodiscard]] std::vector<std::string> socket_paths(std::string_view name);

// Both block nothing. Errors: errno in `code`.
[[nodiscard]] result<int> listen_at(const std::string& path, mode_t mode);
[[nodiscard]] result<int> connect_to(const std::string& path);

struct peer {
  uid_t uid = 0;
  pid_t pid = 0;
};
// The peer at the other end, as the kernel knows it.
[[nodiscard]] result<peer> peer_of(int socket);

inline constexpr std::size_t maximum_descriptors = 2;

// One message with its descriptors (-1: none). They are close-on-exec and the caller's to close.
struct packet {
  std::size_t length_bytes = 0;
  std::array<int, maximum_descriptors> descriptors{-1, -1};
};

// Returns 0 or an errno value: EAGAIN when the other side does not read.
[[nodiscard]] int send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors = {});

// Returns 0 or an errno value: EAGAIN when there is nothing, ECONNRESET when the other side is gone, EMSGSIZE when it
// has sent more bytes or descriptors than fit (those that came are closed).
[[nodiscard]] int receive_packet(int socket, std::span<std::byte> bytes, packet& into);

// Wakes the other side. Failures can be ignored: a full queue wakes it, too, and the end of the peer is noticed
// elsewhere.
void ring_bell(int socket) noexcept;

// Takes all bells. Returns 0, ECONNRESET when the other side is gone, or EBADMSG when it has sent anything else.
[[nodiscard]] int answer_bells(int socket) noexcept;

}  // namespace far::wire
