// A name that is looked up while the program runs: in the hosts file, and by DNS.
//
// The C library's own lookup blocks, and uses tables that it keeps in the program's heap. Those are cold, so they are
// on the far tier, perhaps on the very server that is looked for. c-ares does neither: all that it allocates is ours
// when a thread of the runtime calls it, and it waits for no answer. It knows no other sources of /etc/nsswitch.conf
// than these two.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/tcp/server_addresses.h"
#include "backend/tcp/tcp_uri.h"
#include "base/result.h"

struct ares_channeldata;

namespace far::backend {

// Not thread-safe.
class name_lookup {
 public:
  // `dns_servers`: in place of those that the machine's settings name, "127.0.0.1:5300".
  explicit name_lookup(tcp_endpoint server, std::string dns_servers = "");
  ~name_lookup();
  name_lookup(const name_lookup&) = delete;
  name_lookup& operator=(const name_lookup&) = delete;

  // Reads the machine's settings anew, and asks. Forgets a lookup that is under way.
  void begin();
  [[nodiscard]] bool is_under_way() const { return answer_ != nullptr; }
  // Does what can be done without waiting. Has a value when the lookup is over: the addresses, or why there are none,
  // after 6 s at the latest. Requires: is_under_way().
  [[nodiscard]] std::optional<result<std::vector<socket_address>>> advance();
  // Also in the child of a fork, for which the parent's lookup does not count.
  void cancel();

 private:
  struct answer;

  const tcp_endpoint server_;
  const std::string dns_servers_;
  std::unique_ptr<answer> answer_;  // its address is known to the channel
  std::chrono::steady_clock::time_point until_;
  ares_channeldata* channel_ = nullptr;
};

// A whole lookup. Blocks.
[[nodiscard]] result<std::vector<socket_address>> look_up(const tcp_endpoint& server);

}  // namespace far::backend
