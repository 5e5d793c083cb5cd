// One memory server over TCP.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend/tcp/connection.h"
#include "backend/tcp/server_lookup.h"
#include "backend/tcp/store_backend.h"
#include "backend/tcp/tcp_session.h"
#include "backend/tcp/tcp_uri.h"
#include "base/result.h"
#include "platform/clock.h"
#include "wire/client_handshake.h"
#include "wire/tls.h"

namespace far::backend {

// Shared by all servers of a far tier: read and checked once.
struct tcp_trust {
  wire::credentials shown;
  std::shared_ptr<wire::tls_context> tls;  // nullptr: no TLS

  // Reads the token file and the authorities that the options name. Errors say what to do.
  [[nodiscard]] static result<tcp_trust> load(const tcp_options& chosen);
};

// Opens, shares and ends its session.
class tcp_backend final : public store_backend {
 public:
  // Connects, opens a session, and waits for the first blocks, for up to the timeout, or up to `patience_ns` when that
  // is less. Errors name the server, and say what to do; none of them holds the token.
  [[nodiscard]] static result<std::unique_ptr<backend>> open(
      const tcp_endpoint& server, const tcp_options& chosen, const tcp_trust& trust,
      std::uint64_t patience_ns = std::numeric_limits<std::uint64_t>::max());

  // A backend of a server that is not reachable now, or whose name has no address now: tend() keeps trying. Until it
  // has been reached it does not answer() and has no room. Errors: no descriptor left.
  [[nodiscard]] static result<std::unique_ptr<backend>> open_later(const tcp_endpoint& server,
                                                                   const tcp_options& chosen, const tcp_trust& trust);

  // A backend with a connection over each of these streams, which may be those of the simulation's network. Nothing is
  // connected yet: tend() and transfers do that. Requires: at least one stream, `chosen.capacity_bytes` is not 0, and
  // `time` outlives the backend.
  [[nodiscard]] static std::unique_ptr<tcp_backend> assemble(std::string peer, const tcp_options& chosen,
                                                             const tcp_trust& trust,
                                                             std::vector<std::unique_ptr<byte_stream>> streams,
                                                             const platform::clock& time);

  // Ends the session, unless this is the child of a fork: there it is still the parent's.
  ~tcp_backend() override;

  [[nodiscard]] bool lends() const override { return blocks() == nullptr || !blocks()->is_draining(); }
  [[nodiscard]] bool reduces() const override { return true; }  // an older server says that it cannot
  [[nodiscard]] bool reduces_rows() const override { return true; }
  [[nodiscard]] std::uint64_t lease_ns() const override { return session_.lease_ns(); }
  [[nodiscard]] std::uint64_t server_identity() const override { return session_.identity(); }
  void prepare_exit() override;
  void after_fork_in_child() override;
  [[nodiscard]] std::string describe() const override;

 private:
  tcp_backend(std::string peer, const tcp_options& chosen, const tcp_trust& trust, const platform::clock& time);
  void add_stream(std::unique_ptr<byte_stream> stream);
  [[nodiscard]] result<void> make_connections(const tcp_endpoint& server, const std::vector<socket_address>& addresses);
  [[nodiscard]] std::uint64_t usable_slots() const override;
  [[nodiscard]] far::error has_no_room() const override;
  [[nodiscard]] bool say_farewell() override;
  [[nodiscard]] std::uint64_t tend_more() override;
  [[nodiscard]] const session_epoch& session() const override { return session_; }

  const tcp_options chosen_;
  const tcp_trust trust_;
  tcp_session session_;
  std::vector<std::unique_ptr<tcp_connection>> connections_;
  std::unique_ptr<server_lookup> lookup_;  // nullptr in the simulation
};

}  // namespace far::backend
