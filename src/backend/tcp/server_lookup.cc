#include "backend/tcp/server_lookup.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/log.h"

namespace far::backend {
namespace {

// How long a server is away before its name is looked up again, and from one lookup to the next: other clients ask the
// same DNS server.
constexpr std::uint64_t lookup_after_ns = 1'000'000'000;
constexpr std::uint64_t between_lookups_ns = 5'000'000'000;
constexpr std::uint64_t lookup_pause_ns = 20'000'000;  // while one is under way

}  // namespace

server_lookup::server_lookup(const tcp_endpoint& server, std::string peer, const std::vector<socket_address>& known)
    : peer_(std::move(peer)), addresses_(std::make_shared<server_addresses>(known)) {
  if (address_in_digits(server.host, server.port).bytes == 0) lookup_ = std::make_unique<name_lookup>(server);
}

std::uint64_t server_lookup::tend(std::uint64_t away_since_ns, std::uint64_t now_ns) {
  if (lookup_ == nullptr) return std::numeric_limits<std::uint64_t>::max();
  if (away_since_ns == 0) {
    lookup_->cancel();
    is_failure_told_ = false;
    return std::numeric_limits<std::uint64_t>::max();
  }
  if (lookup_->is_under_way()) {
    end_lookup();
  } else if (now_ns >= std::max(next_at_ns_, away_since_ns + lookup_after_ns)) {
    next_at_ns_ = now_ns + between_lookups_ns;
    lookup_->begin();
  }
  return lookup_pause_ns;
}

// Ends the lookup, if it has an answer.
void server_lookup::end_lookup() {
  const std::optional<result<std::vector<socket_address>>> found = lookup_->advance();
  if (!found) return;
  if (*found) {
    if (addresses_->replace(found->value())) {
      log_line(log_level::info, "far tier %s: its name has other addresses now, which are tried, too", peer_.c_str());
    }
  } else if (!std::exchange(is_failure_told_, true)) {
    log_line(log_level::warning, "far tier %s: %s; going on with the addresses of before", peer_.c_str(),
             found->error().message.c_str());
  }
}

void server_lookup::restart_in_child() {
  addresses_->unlock_after_fork();
  if (lookup_ != nullptr) lookup_->cancel();
}

}  // namespace far::backend
