// One connection as the event loop sees it: a protocol, behind TLS or not. The loop moves bytes between a socket and
// receive_space() / to_send(); it may do both at once, and call work() meanwhile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "server/protocol.h"
#include "wire/tls.h"

namespace far::server {

class connection {
 public:
  // `security` nullptr: plain; `network`: as for a protocol. Errors: no memory for TLS.
  [[nodiscard]] static result<std::unique_ptr<connection>> create(const protocol_settings& settings,
                                                                  loop_counters& counters, wire::tls_context* security,
                                                                  std::uint64_t now_ns, std::string network);

  // Room for the next bytes from the socket; empty: receive nothing now. Requires: nothing is being received.
  [[nodiscard]] std::span<std::byte> receive_space();
  void received(std::size_t bytes, std::uint64_t now_ns);

  // The bytes for the socket; empty: nothing now. Requires: nothing is being sent.
  [[nodiscard]] std::span<const std::byte> to_send();
  void sent(std::size_t bytes, std::uint64_t now_ns);

  void work(std::uint64_t now_ns);
  [[nodiscard]] std::uint64_t next_work_ns() const;

  // The socket is to be closed now. If the client is still owed an answer, this becomes true after that has been sent.
  [[nodiscard]] bool is_done(std::uint64_t now_ns) const;

  // protocol::hand_over(). Not with TLS: its keys stay in the server.
  [[nodiscard]] bool hand_over(int socket) const { return !tls_ && protocol_.hand_over(socket); }

  [[nodiscard]] protocol& messages() { return protocol_; }
  [[nodiscard]] const protocol& messages() const { return protocol_; }

 private:
  static constexpr std::size_t cipher_bytes = 64 * kib;

  // TLS, and its buffers for the socket.
  struct secured {
    std::unique_ptr<wire::tls_stream> stream;
    byte_buffer in{cipher_bytes};
    byte_buffer out{cipher_bytes};
  };

  connection(const protocol_settings& settings, loop_counters& counters, std::uint64_t now_ns, std::string network)
      : patience_ns_(settings.patience_ns), protocol_(settings, counters, now_ns, std::move(network)) {}
  void feed();
  [[nodiscard]] bool decrypt(std::uint64_t now_ns);
  void encrypt(std::uint64_t now_ns);
  void fail(int code);

  std::uint64_t patience_ns_;
  protocol protocol_;
  std::unique_ptr<secured> tls_;
  bool is_bound_ = false;  // the protocol knows the TLS connection
  bool is_tired_ = false;
  std::uint64_t over_since_ns_ = protocol::never;
};

}  // namespace far::server
