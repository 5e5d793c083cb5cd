#include "backend/tcp/tcp_backend.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "backend/tcp/secure_stream.h"
#include "backend/tcp/socket_stream.h"
#include "base/check.h"
#include "base/log.h"

namespace far::backend {
namespace {

// How long a process that ends waits until it can say so.
constexpr std::uint64_t exit_patience_ns = 1'000'000'000;

}  // namespace

result<tcp_trust> tcp_trust::load(const tcp_options& chosen) {
  tcp_trust loaded;
  loaded.shown.tenant = chosen.tenant;
  if (!chosen.token_file.empty()) {
    result<std::string> token = wire::read_token_file(chosen.token_file);
    if (!token) return token.error();
    loaded.shown.token = std::move(token).value();
  }
  if (chosen.tls) {
    result<std::unique_ptr<wire::tls_context>> context = wire::tls_context::for_client(chosen.authority_file);
    if (!context) return context.error();
    loaded.tls = std::move(context).value();
  }
  return loaded;
}

result<std::unique_ptr<backend>> tcp_backend::open(const tcp_endpoint& server, const tcp_options& chosen,
                                                   const tcp_trust& trust, std::uint64_t patience_ns) {
  std::unique_ptr<tcp_backend> opened(new tcp_backend("tcp://" + server.text(), chosen, trust, machine_clock()));
  const result<std::vector<socket_address>> addresses = resolve(server);
  if (!addresses) return addresses.error();
  if (result<void> made = opened->make_connections(server, addresses.value()); !made) return made.error();
  if (result<void> connected = opened->connect(patience_ns); !connected) {
    return connected.error();
  }
  return std::unique_ptr<backend>(std::move(opened));
}

result<std::unique_ptr<backend>> tcp_backend::open_later(const tcp_endpoint& server, const tcp_options& chosen,
                                                         const tcp_trust& trust) {
  std::unique_ptr<tcp_backend> opened(new tcp_backend("tcp://" + server.text(), chosen, trust, machine_clock()));
  const result<std::vector<socket_address>> known = resolve(server);
  const std::vector<socket_address> addresses = known ? known.value() : std::vector<socket_address>();
  if (result<void> made = opened->make_connections(server, addresses); !made) return made.error();
  opened->connect_later();
  return std::unique_ptr<backend>(std::move(opened));
}

std::unique_ptr<tcp_backend> tcp_backend::assemble(std::string peer, const tcp_options& chosen, const tcp_trust& trust,
                                                   std::vector<std::unique_ptr<byte_stream>> streams,
                                                   const platform::clock& time) {
  FAR_CHECK(!streams.empty() && chosen.capacity_bytes >= page_bytes, "connections, and something to lend");
  std::unique_ptr<tcp_backend> created(new tcp_backend(std::move(peer), chosen, trust, time));
  for (std::unique_ptr<byte_stream>& stream : streams) created->add_stream(std::move(stream));
  created->lend(chosen.capacity_bytes / page_bytes);
  return created;
}

tcp_backend::tcp_backend(std::string peer, const tcp_options& chosen, const tcp_trust& trust,
                         const platform::clock& time)
    : store_backend(std::move(peer), "farheapd", chosen.timeout_ns,
                    {.name = "token", .file = chosen.token_file, .read = wire::read_token_file, .tls = trust.tls},
                    time),
      chosen_(chosen),
      trust_(trust) {}

std::uint64_t tcp_backend::usable_slots() const {
  return chosen_.capacity_bytes != 0 ? chosen_.capacity_bytes / page_bytes : session_.quota_slots();
}

error tcp_backend::has_no_room() const {
  return {"far tier '" + peer() + "' lends tenant '" + chosen_.tenant +
              "' no memory; raise its quota there (--quota), or name another tenant",
          ENOSPC};
}

tcp_backend::~tcp_backend() {
  if (connections_.empty()) return;
  if (!owns_connections()) {
    // This process is an unannounced fork. Sockets are closed without a message, and their epoll descriptors are left
    // alone: both are shared with the parent. A thread that held a lock there does not exist here.
    for (const std::unique_ptr<tcp_connection>& connection : connections_)
      connection->restart_in_child(wire::first_child_channel);
    if (lookup_) lookup_->abandon();
    return;
  }
  if (is_child()) return;
  const lock_guard guard(connections_[0]->lock);
  // When there is no room for it, the session ends with its grace period.
  static_cast<void>(connections_[0]->end_session());
}

void tcp_backend::add_stream(std::unique_ptr<byte_stream> stream) {
  tcp_connection_settings settings{.peer = peer(),
                                   .channel = static_cast<std::uint32_t>(connections_.size()),
                                   .timeout_ns = chosen_.timeout_ns,
                                   .opens_session = connections_.empty()};
  connections_.push_back(std::make_unique<tcp_connection>(std::move(settings), std::move(stream), session_,
                                                          trust_.shown, time(), nullptr));
  add_connection(*connections_.back());
}

result<void> tcp_backend::make_connections(const tcp_endpoint& server, const std::vector<socket_address>& addresses) {
  lookup_ = std::make_unique<server_lookup>(server, peer(), addresses);
  for (std::uint64_t i = 0; i < chosen_.connections; ++i) {
    result<std::unique_ptr<byte_stream>> stream = socket_stream::create(lookup_->addresses());
    if (!stream) return stream.error();
    std::unique_ptr<byte_stream> used = std::move(stream).value();
    if (trust_.tls) used = std::make_unique<secure_stream>(std::move(used), *trust_.tls, server.host);
    add_stream(std::move(used));
  }
  return {};
}

// The slots serve until the process has ended. After its connections are gone, nobody needs them.
void tcp_backend::prepare_exit() {
  if (is_child() || !owns_connections()) return;
  tcp_connection& first = *connections_[0];
  const std::uint64_t until_ns = time().now_ns() + exit_patience_ns;
  while (time().now_ns() < until_ns) {
    {
      const lock_guard guard(first.lock);
      if (first.say_leaving()) return;
    }
    first.wait(1'000'000);
  }
}

bool tcp_backend::say_farewell() {
  connections_[0]->lock.assert_held();  // by retire()
  return connections_[0]->end_session();
}

void tcp_backend::after_fork_in_child() {
  become_child();
  session_.unlock_after_fork();
  if (lookup_) lookup_->restart_in_child();
  if (trust_.tls) trust_.tls->unlock_after_fork();
  // Drawn at random: numbers of processes are not unique among containers.
  std::uint32_t drawn = 0;
  wire::fill_random(std::as_writable_bytes(std::span(&drawn, 1)));
  std::uint32_t channel = wire::first_child_channel | (drawn & ~static_cast<std::uint32_t>(most_connections - 1));
  for (const std::unique_ptr<tcp_connection>& connection : connections_) connection->restart_in_child(channel++);
}

// A server that is away may have moved.
std::uint64_t tcp_backend::tend_more() {
  if (lookup_ == nullptr) return std::numeric_limits<std::uint64_t>::max();
  return lookup_->tend(connections_[0]->away_since_ns(), time().now_ns());
}

std::string tcp_backend::describe() const {
  return peer() + (trust_.tls ? " with TLS" : "");
}

}  // namespace far::backend
