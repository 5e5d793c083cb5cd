#include "backend/redis/redis_backend.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <span>
#include <utility>

#include "backend/tcp/secure_stream.h"
#include "backend/tcp/socket_stream.h"
#include "platform/wait_for_events.h"
#include "wire/handshake.h"

namespace far::backend {
namespace {

// How long an ending program waits for its keys to be deleted; the rest expires with its lease.
constexpr std::uint64_t farewell_ns = 2'000'000'000;

// A process that ends by itself leaves its strings for so long.
constexpr std::uint64_t exit_lease_ns = 10'000'000'000;
constexpr std::uint64_t exit_patience_ns = 1'000'000'000;

// "PREFIX:0123456789abcdef:", drawn at random; in a cluster with a hash tag, "PREFIX:0123456789abcdef{TAG}:".
std::string draw_stem(const std::string& prefix, const cluster_home& home) {
  std::uint64_t drawn = 0;
  wire::fill_random(std::as_writable_bytes(std::span(&drawn, 1)));
  std::array<char, 20> digits{};
  static_cast<void>(std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(drawn)));
  const std::string tag = home.directory == nullptr ? "" : "{" + tag_in_slot(home.slot) + "}";
  return prefix + ":" + digits.data() + tag + ":";
}

}  // namespace

result<redis_trust> redis_trust::load(const redis_options& chosen) {
  redis_trust loaded;
  if (!chosen.password_file.empty()) {
    result<std::string> password = read_password_file(chosen.password_file);
    if (!password) return password.error();
    loaded.password = std::move(password).value();
  }
  if (chosen.tls) {
    result<std::unique_ptr<wire::tls_context>> context = wire::tls_context::for_client(chosen.authority_file);
    if (!context) return context.error();
    loaded.tls = std::move(context).value();
  }
  return loaded;
}

result<std::unique_ptr<redis_backend>> redis_backend::make(const tcp_endpoint& server,
                                                           const std::vector<socket_address>& addresses,
                                                           const redis_options& chosen, const redis_trust& trust,
                                                           const cluster_home& home) {
  const bool in_cluster = home.directory != nullptr;
  const std::string peer =
      std::string(chosen.tls ? "rediss" : "redis") + (in_cluster ? "+cluster" : "") + "://" + server.text();
  std::unique_ptr<redis_backend> created(new redis_backend(peer, draw_stem(chosen.prefix, home), chosen, trust));
  created->lookup_ = std::make_unique<server_lookup>(server, peer, addresses);
  if (in_cluster) {
    created->directory_ = home.directory;
    static_cast<void>(created->session_.retarget(home.master));
    home.directory->add_home(home.slot);
  }
  const std::string name = home.master.name[0] != '\0' ? home.master.name.data() : server.host;
  const auto open_stream = [&]() -> result<std::unique_ptr<byte_stream>> {
    result<std::unique_ptr<byte_stream>> stream = socket_stream::create(created->lookup_->addresses());
    if (!stream || !trust.tls) return stream;
    return std::unique_ptr<byte_stream>(std::make_unique<secure_stream>(std::move(stream).value(), *trust.tls, name));
  };
  for (std::uint64_t i = 0; i < chosen.connections; ++i) {
    result<std::unique_ptr<byte_stream>> stream = open_stream();
    if (!stream) return stream.error();
    std::unique_ptr<byte_stream> second;
    if (in_cluster) {
      result<std::unique_ptr<byte_stream>> opened = open_stream();
      if (!opened) return opened.error();
      second = std::move(opened).value();
    }
    created->connections_.push_back(std::make_unique<redis_connection>(redis_settings{.peer = peer,
                                                                                      .user = chosen.user,
                                                                                      .password = trust.password,
                                                                                      .database = chosen.database,
                                                                                      .timeout_ns = chosen.timeout_ns,
                                                                                      .lease_ns = chosen.lease_ns,
                                                                                      .cluster = home.directory.get(),
                                                                                      .hash_slot = home.slot,
                                                                                      .writes = i == 0},
                                                                       std::move(stream).value(), created->session_,
                                                                       created->time(), std::move(second)));
    created->add_connection(*created->connections_.back());
  }
  return created;
}

result<std::unique_ptr<backend>> redis_backend::open(const tcp_endpoint& server, const redis_options& chosen,
                                                     const redis_trust& trust, std::uint64_t patience_ns) {
  const result<std::vector<socket_address>> addresses = resolve(server);
  if (!addresses) return addresses.error();
  result<std::unique_ptr<redis_backend>> created = make(server, addresses.value(), chosen, trust);
  if (!created) return created.error();
  if (result<void> connected = created.value()->connect(patience_ns); !connected) return connected.error();
  return std::unique_ptr<backend>(std::move(created).value());
}

result<std::unique_ptr<backend>> redis_backend::open_later(const tcp_endpoint& server, const redis_options& chosen,
                                                           const redis_trust& trust) {
  const result<std::vector<socket_address>> known = resolve(server);
  const std::vector<socket_address> addresses = known ? known.value() : std::vector<socket_address>();
  result<std::unique_ptr<redis_backend>> created = make(server, addresses, chosen, trust);
  if (!created) return created.error();
  created.value()->connect_later();
  return std::unique_ptr<backend>(std::move(created).value());
}

result<std::unique_ptr<backend>> redis_backend::open(const cluster_home& home, const redis_options& chosen,
                                                     const redis_trust& trust) {
  const tcp_endpoint master{.host = home.master.host.data(), .port = home.master.port};
  const result<std::vector<socket_address>> addresses = resolve(master);
  if (!addresses) return addresses.error();
  result<std::unique_ptr<redis_backend>> created = make(master, addresses.value(), chosen, trust, home);
  if (!created) return created.error();
  const std::uint64_t patience_ns = std::numeric_limits<std::uint64_t>::max();
  if (result<void> connected = created.value()->connect(patience_ns); !connected) return connected.error();
  return std::unique_ptr<backend>(std::move(created).value());
}

result<std::unique_ptr<backend>> redis_backend::open_later(const cluster_home& home, const redis_options& chosen,
                                                           const redis_trust& trust) {
  const tcp_endpoint master{.host = home.master.host.data(), .port = home.master.port};
  const result<std::vector<socket_address>> known = resolve(master);
  const std::vector<socket_address> addresses = known ? known.value() : std::vector<socket_address>();
  result<std::unique_ptr<redis_backend>> created = make(master, addresses, chosen, trust, home);
  if (!created) return created.error();
  created.value()->connect_later();
  return std::unique_ptr<backend>(std::move(created).value());
}

redis_backend::redis_backend(std::string peer, std::string stem, const redis_options& chosen, const redis_trust& trust)
    : store_backend(std::move(peer), "Redis", chosen.timeout_ns,
                    {.name = "password", .file = chosen.password_file, .read = read_password_file, .tls = trust.tls},
                    machine_clock()),
      chosen_(chosen),
      trust_(trust),
      session_(std::move(stem)) {}

redis_backend::~redis_backend() {
  if (connections_.empty()) return;
  if (!owns_connections()) {
    // This process is an unannounced fork. Sockets are closed without a message, and their epoll descriptors are left
    // alone: both are shared with the parent.
    for (const std::unique_ptr<redis_connection>& connection : connections_) connection->restart_in_child();
    lookup_->abandon();
    return;
  }
  if (is_child()) return;
  const lock_guard guard(connections_[0]->lock);
  connections_[0]->end_session(std::min(farewell_ns, timeout_ns()));
}

std::uint64_t redis_backend::usable_slots() const {
  const std::uint64_t bytes = chosen_.capacity_bytes != 0 ? chosen_.capacity_bytes : session_.room_bytes();
  return std::min(bytes / page_bytes, block_table::most_capacity_slots);
}

error redis_backend::has_no_room() const {
  return {"far tier '" + peer() + "' has no room; raise its maxmemory, or name another server", ENOSPC};
}

bool redis_backend::is_at(std::string_view server) const {
  if (directory_ == nullptr) return false;
  const node_address node = session_.target();
  return server == node.text() || server == std::string(node.name.data()) + ":" + std::to_string(node.port);
}

// No other part goes to that node later. A part that is removed by its own name may be on any.
void redis_backend::note_removal(std::string_view server) {
  if (is_at(server)) directory_->shun(session_.target());
}

// A server that is away may have moved. The nodes of a cluster are followed by what it says of their addresses.
std::uint64_t redis_backend::tend_more() {
  return lookup_->tend(connections_[0]->away_since_ns(), time().now_ns());
}

// They are renewed as long as the process lives.
void redis_backend::prepare_exit() {
  if (is_child() || !owns_connections()) return;
  redis_connection& first = *connections_[0];
  const std::uint64_t until_ns = time().now_ns() + exit_patience_ns;
  while (time().now_ns() < until_ns) {
    {
      const lock_guard guard(first.lock);
      if (first.shorten_leases(exit_lease_ns)) return;
    }
    constexpr std::int64_t pause_ns = 1'000'000;
    pollfd watched{.fd = first.descriptor(), .events = POLLIN, .revents = 0};
    platform::wait_for_events({&watched, 1}, pause_ns);
  }
}

void redis_backend::after_fork_in_child() {
  become_child();
  session_.unlock_after_fork();
  lookup_->restart_in_child();
  if (directory_ != nullptr) directory_->unlock_after_fork();
  if (trust_.tls) trust_.tls->unlock_after_fork();
  for (const std::unique_ptr<redis_connection>& connection : connections_) connection->restart_in_child();
}

std::string redis_backend::describe() const {
  return peer();
}

}  // namespace far::backend
