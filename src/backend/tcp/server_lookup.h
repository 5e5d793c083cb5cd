// The addresses of a server by its name, which is looked up again while the server is away.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/tcp/name_lookup.h"
#include "backend/tcp/server_addresses.h"
#include "backend/tcp/store_uri.h"

namespace far::backend {

// A server whose name is an address in digits is never looked up.
class server_lookup {
 public:
  // `known`: what has been found so far. `peer`: for messages, "tcp://cache1:7070".
  server_lookup(const tcp_endpoint& server, std::string peer, const std::vector<socket_address>& known);

  // Those that streams connect to.
  [[nodiscard]] const std::shared_ptr<server_addresses>& addresses() const { return addresses_; }

  // Begins a lookup when it is time, and goes on with one that is under way. `away_since_ns`: 0, the server answers.
  // Returns after how many ns the next call is wanted. Never blocks. One thread at a time.
  [[nodiscard]] std::uint64_t tend(std::uint64_t away_since_ns, std::uint64_t now_ns);

  // In the child of a fork.
  void restart_in_child();
  // In the child of a fork that was not announced: a lookup may be amid a step, and is left as it is.
  void abandon() { static_cast<void>(lookup_.release()); }

 private:
  void end_lookup();

  const std::string peer_;
  const std::shared_ptr<server_addresses> addresses_;
  std::unique_ptr<name_lookup> lookup_;  // nullptr: the name is an address
  std::uint64_t next_at_ns_ = 0;         // when the name may be looked up again
  bool is_failure_told_ = false;         // of this outage
};

}  // namespace far::backend
