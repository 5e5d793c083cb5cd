// One Redis or Valkey server.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend/redis/cluster_directory.h"
#include "backend/redis/redis_connection.h"
#include "backend/redis/redis_session.h"
#include "backend/redis/redis_uri.h"
#include "backend/tcp/server_lookup.h"
#include "backend/tcp/store_backend.h"
#include "base/result.h"
#include "platform/clock.h"
#include "wire/tls.h"

namespace far::backend {

// Shared by all servers of a far tier: read and checked once.
struct redis_trust {
  std::string password;
  std::shared_ptr<wire::tls_context> tls;  // nullptr: no TLS

  // Reads the password file and the authorities that the options name. Errors say what to do.
  [[nodiscard]] static result<redis_trust> load(const redis_options& chosen);
};

// A hash slot of a Redis Cluster that all keys of a backend lie in, and the master that owns it now.
struct cluster_home {
  std::shared_ptr<cluster_directory> directory;
  node_address master;
  std::uint32_t slot = 0;
};

// Opens, shares and ends its session. The first connection also renews the leases of the strings.
class redis_backend final : public store_backend {
 public:
  // Connects, checks that the server never evicts keys, and waits for the first blocks, up to the timeout or
  // `patience_ns`, whichever is less. Errors name the server, and say what to do; none of them holds the password.
  [[nodiscard]] static result<std::unique_ptr<backend>> open(
      const tcp_endpoint& server, const redis_options& chosen, const redis_trust& trust,
      std::uint64_t patience_ns = std::numeric_limits<std::uint64_t>::max());
  // The same for a part of a cluster.
  [[nodiscard]] static result<std::unique_ptr<backend>> open(const cluster_home& home, const redis_options& chosen,
                                                             const redis_trust& trust);

  // A backend of a server that is not reachable now, or whose name has no address now: tend() keeps trying. Until it
  // has been reached it does not answer() and has no room. Errors: no descriptor left.
  [[nodiscard]] static result<std::unique_ptr<backend>> open_later(const tcp_endpoint& server,
                                                                   const redis_options& chosen,
                                                                   const redis_trust& trust);
  [[nodiscard]] static result<std::unique_ptr<backend>> open_later(const cluster_home& home,
                                                                   const redis_options& chosen,
                                                                   const redis_trust& trust);

  // Deletes its keys, for up to two seconds, unless this is the child of a fork: there they are still the parent's.
  ~redis_backend() override;

  // The server keeps what is stored for so long after the last renewal.
  [[nodiscard]] std::uint64_t lease_ns() const override { return chosen_.lease_ns; }
  [[nodiscard]] std::uint64_t server_identity() const override { return session_.identity(); }
  [[nodiscard]] bool is_at(std::string_view server) const override;
  void note_removal(std::string_view server) override;
  void prepare_exit() override;
  void after_fork_in_child() override;
  [[nodiscard]] std::string describe() const override;

 private:
  redis_backend(std::string peer, std::string stem, const redis_options& chosen, const redis_trust& trust);
  [[nodiscard]] static result<std::unique_ptr<redis_backend>> make(const tcp_endpoint& server,
                                                                   const std::vector<socket_address>& addresses,
                                                                   const redis_options& chosen,
                                                                   const redis_trust& trust,
                                                                   const cluster_home& home = {});
  [[nodiscard]] std::uint64_t usable_slots() const override;
  [[nodiscard]] far::error has_no_room() const override;
  [[nodiscard]] std::uint64_t tend_more() override;
  [[nodiscard]] const session_epoch& session() const override { return session_; }

  const redis_options chosen_;
  const redis_trust trust_;
  redis_session session_;
  std::shared_ptr<cluster_directory> directory_;  // nullptr: a single server
  std::unique_ptr<server_lookup> lookup_;
  std::vector<std::unique_ptr<redis_connection>> connections_;
};

}  // namespace far::backend
