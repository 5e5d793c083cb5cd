// One memory server over TCP.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/tcp/block_table.h"
#include "backend/tcp/connection.h"
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

// The first connection carries the writes, and asks for blocks; the others carry reads, so that a page that somebody
// waits for never stands behind a batch of evictions. With one connection, it does both.
//
// All writes take one way for a reason: a write that was given up may still reach the server, until that connection's
// successor has fenced it off. So whatever is written to the slot later comes after the fence.
class tcp_backend final : public backend {
 public:
  // Connects, opens a session, and waits for the first blocks, for up to the timeout, or up to `patience_ns` when that
  // is less. Errors name the server, and say what to do; none of them holds the token.
  [[nodiscard]] static result<std::unique_ptr<backend>> open(
      const tcp_endpoint& server, const tcp_options& chosen, const tcp_trust& trust,
      std::uint64_t patience_ns = std::numeric_limits<std::uint64_t>::max());

  // Of a server that is not there now: tend() goes on trying. Until it has been reached it does not answer() and has no
  // room. Errors: its name cannot be resolved.
  [[nodiscard]] static result<std::unique_ptr<backend>> open_later(const tcp_endpoint& server,
                                                                   const tcp_options& chosen, const tcp_trust& trust);

  // Of streams that somebody else has made, a connection over each; the simulation's network is one. Nothing is
  // connected yet: tend() and transfers do that. Requires: at least one stream, `chosen.capacity_bytes` is not 0, and
  // `time` outlives the backend.
  [[nodiscard]] static std::unique_ptr<tcp_backend> assemble(std::string peer, const tcp_options& chosen,
                                                             const tcp_trust& trust,
                                                             std::vector<std::unique_ptr<byte_stream>> streams,
                                                             const platform::clock& time);

  // Ends the session, unless this is the child of a fork: there it is still the parent's.
  ~tcp_backend() override;

  // ENOSPC also when the server has not been reached for longer than the timeout.
  [[nodiscard]] result<slot_id> allocate(std::size_t count) override;
  void free(slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  std::uint64_t tend() override;
  // False after the server has been away for longer than the timeout.
  [[nodiscard]] bool answers() const override;
  [[nodiscard]] std::uint64_t incarnation() const override { return session_.epoch(); }
  [[nodiscard]] bool lends() const override { return blocks_ == nullptr || !blocks_->is_draining(); }
  [[nodiscard]] std::uint64_t lease_ns() const override { return session_.lease_ns(); }
  [[nodiscard]] std::uint64_t server_identity() const override { return session_.identity(); }
  void after_fork_in_child() override;
  [[nodiscard]] capacity report() const override;
  [[nodiscard]] speed expected_speed() const override;
  [[nodiscard]] std::string describe() const override;

 private:
  tcp_backend(std::string peer, const tcp_options& chosen, const tcp_trust& trust, const platform::clock& time);
  void add_connection(std::unique_ptr<byte_stream> stream);
  void lend(std::uint64_t slots);
  [[nodiscard]] result<void> make_connections(const tcp_endpoint& server);
  [[nodiscard]] result<void> connect(std::uint64_t patience_ns);
  void greet_late_server();
  [[nodiscard]] result<void> wait_until(const std::function<bool()>& reached, tcp_connection& connection,
                                        std::uint64_t until_ns);
  void measure_round_trip(std::uint64_t until_ns);
  [[nodiscard]] far::error lends_nothing() const;
  [[nodiscard]] far::error cannot_open(const tcp_connection& failed) const FAR_REQUIRES(failed.lock);
  void nudge();

  const std::string peer_;
  const tcp_options chosen_;
  const tcp_trust trust_;
  const platform::clock& time_;
  tcp_session session_;
  // Made when the server has said what it lends; or before, for a server that comes later.
  std::unique_ptr<block_table> blocks_;
  std::vector<std::unique_ptr<tcp_connection>> connections_;
  std::atomic<std::size_t> next_channel_{0};
  std::uint64_t round_trip_ns_ = 0;
  std::atomic<bool> was_reached_{true};  // false only of a server that was missing at the start
  pid_t owner_;                          // the process whose connections these are
  bool in_child_ = false;
};

}  // namespace far::backend
