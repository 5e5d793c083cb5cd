#include "backend/tcp/tcp_backend.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <mutex>
#include <span>
#include <utility>

#include "backend/tcp/secure_stream.h"
#include "backend/tcp/socket_stream.h"
#include "backend/tcp/tcp_channel.h"
#include "base/check.h"
#include "base/log.h"

namespace far::backend {
namespace {

// How often a quiet connection is looked at, at least.
constexpr std::uint64_t longest_pause_ns = 100'000'000;
constexpr std::uint64_t shortest_pause_ns = 1'000'000;

// The assumed bandwidth of a network that nobody has measured: 10 Gbit/s.
constexpr std::uint64_t usual_bytes_per_second = 1'250'000'000;

// Channel numbers below this are a parent's; a child draws one above it, so that it fences nobody off.
constexpr std::uint32_t first_child_channel = std::uint32_t{1} << 31;

const platform::clock& machine_clock() {
  static const platform::monotonic_clock time;
  return time;
}

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
  if (result<void> connected = opened->make_connections(server); !connected) return connected.error();
  if (result<void> connected = opened->connect(patience_ns); !connected) {
    return connected.error();
  }
  return std::unique_ptr<backend>(std::move(opened));
}

result<std::unique_ptr<backend>> tcp_backend::open_later(const tcp_endpoint& server, const tcp_options& chosen,
                                                         const tcp_trust& trust) {
  std::unique_ptr<tcp_backend> opened(new tcp_backend("tcp://" + server.text(), chosen, trust, machine_clock()));
  if (result<void> connected = opened->make_connections(server); !connected) return connected.error();
  opened->was_reached_.store(false);
  opened->blocks_ = std::make_unique<block_table>(block_table::most_capacity_slots);
  return std::unique_ptr<backend>(std::move(opened));
}

// It has said what it lends, so blocks can be asked for.
void tcp_backend::greet_late_server() {
  tcp_connection& first = *connections_[0];
  if (first.away_since_ns() != 0) return;
  const std::uint64_t lent_slots = session_.quota_slots();
  const std::uint64_t wanted_slots = chosen_.capacity_bytes != 0 ? chosen_.capacity_bytes / page_bytes : lent_slots;
  was_reached_.store(true);
  if (wanted_slots == 0) return log_line(log_level::error, "%s", lends_nothing().message.c_str());
  blocks_->limit_capacity(std::min(wanted_slots, block_table::most_capacity_slots));
  const lock_guard guard(first.lock);
  first.set_control(blocks_.get());
}

error tcp_backend::lends_nothing() const {
  return {"far tier '" + peer_ + "' lends tenant '" + chosen_.tenant +
              "' no memory; raise its quota there (--quota), or name another tenant",
          ENOSPC};
}

std::unique_ptr<tcp_backend> tcp_backend::assemble(std::string peer, const tcp_options& chosen, const tcp_trust& trust,
                                                   std::vector<std::unique_ptr<byte_stream>> streams,
                                                   const platform::clock& time) {
  FAR_CHECK(!streams.empty() && chosen.capacity_bytes >= page_bytes, "connections, and something to lend");
  std::unique_ptr<tcp_backend> created(new tcp_backend(std::move(peer), chosen, trust, time));
  for (std::unique_ptr<byte_stream>& stream : streams) created->add_connection(std::move(stream));
  created->lend(chosen.capacity_bytes / page_bytes);
  return created;
}

tcp_backend::tcp_backend(std::string peer, const tcp_options& chosen, const tcp_trust& trust,
                         const platform::clock& time)
    : peer_(std::move(peer)), chosen_(chosen), trust_(trust), time_(time), owner_(getpid()) {}

tcp_backend::~tcp_backend() {
  if (connections_.empty()) return;
  if (getpid() != owner_) {
    // Nobody has told us of the fork. Sockets are closed without a sign, and what watches them is left alone: both are
    // shared with the parent. Whoever held a lock there is not here to give it back.
    for (const std::unique_ptr<tcp_connection>& connection : connections_)
      connection->restart_in_child(first_child_channel);
    return;
  }
  if (in_child_) return;
  const lock_guard guard(connections_[0]->lock);
  connections_[0]->end_session();
}

void tcp_backend::add_connection(std::unique_ptr<byte_stream> stream) {
  tcp_connection_settings settings{.peer = peer_,
                                   .channel = static_cast<std::uint32_t>(connections_.size()),
                                   .timeout_ns = chosen_.timeout_ns,
                                   .opens_session = connections_.empty()};
  connections_.push_back(
      std::make_unique<tcp_connection>(std::move(settings), std::move(stream), session_, trust_.shown, time_, nullptr));
}

// From now on there are slots to allocate, as soon as the server grants blocks.
void tcp_backend::lend(std::uint64_t slots) {
  blocks_ = std::make_unique<block_table>(std::min(slots, block_table::most_capacity_slots));
  const lock_guard guard(connections_[0]->lock);
  connections_[0]->set_control(blocks_.get());
}

result<void> tcp_backend::make_connections(const tcp_endpoint& server) {
  const result<std::vector<socket_address>> addresses = resolve(server);
  if (!addresses) return addresses.error();
  for (std::uint64_t i = 0; i < chosen_.connections; ++i) {
    result<std::unique_ptr<byte_stream>> stream = socket_stream::create(addresses.value());
    if (!stream) return stream.error();
    std::unique_ptr<byte_stream> used = std::move(stream).value();
    if (trust_.tls) used = std::make_unique<secure_stream>(std::move(used), *trust_.tls, server.host);
    add_connection(std::move(used));
  }
  return {};
}

result<void> tcp_backend::connect(std::uint64_t patience_ns) {
  tcp_connection& first = *connections_[0];
  const std::uint64_t until_ns = time_.now_ns() + std::min(chosen_.timeout_ns, patience_ns);
  for (const std::unique_ptr<tcp_connection>& connection : connections_) {
    const auto ready = [&connection] {
      connection->lock.assert_held();  // by wait_until()
      return connection->now() == tcp_connection::phase::ready;
    };
    if (result<void> reached = wait_until(ready, *connection, until_ns); !reached) return reached.error();
  }
  const std::uint64_t lent_slots = session_.quota_slots();
  const std::uint64_t wanted_slots = chosen_.capacity_bytes != 0 ? chosen_.capacity_bytes / page_bytes : lent_slots;
  if (wanted_slots == 0) return lends_nothing();
  lend(wanted_slots);
  // A full server is found out here too, but it may have room by the time that it is wanted.
  const result<void> stocked = wait_until([this] { return !blocks_->wants_blocks(); }, first, until_ns);
  if (stocked) measure_round_trip(until_ns);
  return stocked;
}

// The quickest of a few reads of a page. Where there is none to be had, it stays unknown.
void tcp_backend::measure_round_trip(std::uint64_t until_ns) {
  constexpr int attempts = 8;
  const result<std::unique_ptr<channel>> queue = open_channel(1);
  const result<slot_id> slot = blocks_->allocate(1, session_.epoch());
  std::vector<std::byte> page(page_bytes);
  for (int i = 0; i < attempts && queue && slot; ++i) {
    const request one{.op = operation::read, .slot = slot.value(), .buffer = page.data()};
    const std::uint64_t asked_ns = time_.now_ns();
    completion done;
    if (asked_ns >= until_ns || queue.value()->submit({&one, 1}) == 0) break;
    // It ends by its own deadline, if not before.
    while (queue.value()->poll({&done, 1}) == 0) queue.value()->wait(chosen_.timeout_ns);
    if (done.error_code != 0) break;
    const std::uint64_t took_ns = time_.now_ns() - asked_ns;
    round_trip_ns_ = round_trip_ns_ == 0 ? took_ns : std::min(round_trip_ns_, took_ns);
  }
  if (slot) blocks_->free(slot.value(), 1);
}

result<void> tcp_backend::wait_until(const std::function<bool()>& reached, tcp_connection& connection,
                                     std::uint64_t until_ns) {
  // The server's name may stand for several addresses, of which only one is listened on.
  constexpr unsigned attempts = 4;
  while (true) {
    std::uint64_t next_ns = 0;
    int descriptor = -1;
    {
      const lock_guard guard(connection.lock);
      next_ns = connection.advance(nullptr);
      descriptor = connection.descriptor();
      if (reached()) return {};
      if (connection.refused() || connection.failures() >= attempts) return cannot_open(connection);
    }
    const std::uint64_t now_ns = time_.now_ns();
    if (now_ns >= until_ns) {
      const lock_guard guard(connection.lock);
      return cannot_open(connection);
    }
    const std::uint64_t pause_ns = std::min(std::max(next_ns, now_ns + 1), until_ns) - now_ns;
    const timespec sleep{static_cast<time_t>(pause_ns / 1'000'000'000), static_cast<long>(pause_ns % 1'000'000'000)};
    pollfd watched{.fd = descriptor, .events = POLLIN, .revents = 0};
    ppoll(&watched, 1, &sleep, nullptr);
  }
}

error tcp_backend::cannot_open(const tcp_connection& failed) const {
  std::string message = "far tier '" + peer_ + "' cannot be used: ";
  if (failed.failure_code() == 0) {
    return {message + "it does not answer; check the address, the network, and that farheapd runs there", ETIMEDOUT};
  }
  message += failed.explanation();
  if (!failed.refused()) {
    message += failed.failure_code() == EACCES ? "; check 'ca', and that the certificate names this host"
                                               : "; check the address, and that farheapd runs and listens there";
  }
  return {std::move(message), failed.failure_code()};
}

result<slot_id> tcp_backend::allocate(std::size_t count) {
  result<slot_id> first = blocks_->allocate(count, session_.epoch());
  const bool waiting = !first && first.error().code == EAGAIN;
  if (!waiting && !blocks_->below_reserve()) return first;
  nudge();
  if (!waiting) return first;
  const std::uint64_t away_since_ns = connections_[0]->away_since_ns();
  if (away_since_ns != 0 && time_.now_ns() > away_since_ns + chosen_.timeout_ns) return out_of_slots();
  return first;
}

// Blocks are asked for when the first connection is advanced.
void tcp_backend::nudge() {
  tcp_connection& first = *connections_[0];
  if (!first.lock.try_lock()) return;
  const lock_guard guard(first.lock, std::adopt_lock);
  first.advance(nullptr);
}

void tcp_backend::free(slot_id first, std::size_t count) {
  blocks_->free(first, count);
}

result<std::unique_ptr<channel>> tcp_backend::open_channel(std::size_t depth) {
  const std::size_t readers = connections_.size() - 1;
  const std::size_t reads = readers == 0 ? 0 : 1 + next_channel_.fetch_add(1) % readers;
  return tcp_channel::open({connections_[reads].get(), connections_[0].get()}, *blocks_, session_, time_,
                           chosen_.timeout_ns, depth);
}

bool tcp_backend::answers() const {
  const std::uint64_t away_since_ns = connections_[0]->away_since_ns();
  if (!was_reached_.load()) return false;
  return away_since_ns == 0 || time_.now_ns() <= away_since_ns + chosen_.timeout_ns;
}

std::uint64_t tcp_backend::tend() {
  std::uint64_t next_ns = std::numeric_limits<std::uint64_t>::max();
  for (const std::unique_ptr<tcp_connection>& connection : connections_) {
    if (!connection->lock.try_lock()) continue;
    const lock_guard guard(connection->lock, std::adopt_lock);
    next_ns = std::min(next_ns, connection->advance(nullptr));
  }
  if (!was_reached_.load()) greet_late_server();
  const std::uint64_t now_ns = time_.now_ns();
  return std::clamp(next_ns - std::min(next_ns, now_ns), shortest_pause_ns, longest_pause_ns);
}

void tcp_backend::after_fork_in_child() {
  in_child_ = true;
  owner_ = getpid();
  session_.unlock_after_fork();
  blocks_->unlock_after_fork();
  // Drawn at random: numbers of processes are not unique among containers.
  std::uint32_t drawn = 0;
  wire::fill_random(std::as_writable_bytes(std::span(&drawn, 1)));
  std::uint32_t channel = first_child_channel | (drawn & ~static_cast<std::uint32_t>(most_tcp_connections - 1));
  for (const std::unique_ptr<tcp_connection>& connection : connections_) connection->restart_in_child(channel++);
}

capacity tcp_backend::report() const {
  return was_reached_.load() ? blocks_->report() : capacity{};
}

speed tcp_backend::expected_speed() const {
  return {round_trip_ns_, usual_bytes_per_second};
}

std::string tcp_backend::describe() const {
  return peer_ + (trust_.tls ? " with TLS" : "");
}

}  // namespace far::backend
