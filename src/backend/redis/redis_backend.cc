#include "backend/redis/redis_backend.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <span>
#include <utility>

#include "backend/tcp/secure_stream.h"
#include "backend/tcp/socket_stream.h"
#include "backend/tcp/tcp_channel.h"
#include "base/check.h"
#include "base/log.h"
#include "wire/handshake.h"

namespace far::backend {
namespace {

// How often a quiet connection is looked at, at least.
constexpr std::uint64_t longest_pause_ns = 100'000'000;
constexpr std::uint64_t shortest_pause_ns = 1'000'000;

// The assumed bandwidth of a network that nobody has measured: 10 Gbit/s.
constexpr std::uint64_t usual_bytes_per_second = 1'250'000'000;

// How long a program that ends waits for its keys to be deleted; what is left goes with its lease.
constexpr std::uint64_t farewell_ns = 2'000'000'000;

// A process that ends by itself leaves its strings for so long.
constexpr std::uint64_t exit_lease_ns = 10'000'000'000;
constexpr std::uint64_t exit_patience_ns = 1'000'000'000;

// "PREFIX:0123456789abcdef:", drawn at random.
std::string draw_stem(const std::string& prefix) {
  std::uint64_t drawn = 0;
  wire::fill_random(std::as_writable_bytes(std::span(&drawn, 1)));
  std::array<char, 20> digits{};
  static_cast<void>(std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(drawn)));
  return prefix + ":" + digits.data() + ":";
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

result<std::unique_ptr<redis_backend>> redis_backend::make(const tcp_endpoint& server, const redis_options& chosen,
                                                           const redis_trust& trust) {
  const std::string peer = (chosen.tls ? "rediss://" : "redis://") + server.text();
  const result<std::vector<socket_address>> addresses = resolve(server);
  if (!addresses) return addresses.error();
  std::unique_ptr<redis_backend> made(new redis_backend(peer, draw_stem(chosen.prefix), chosen, trust));
  for (std::uint64_t i = 0; i < chosen.connections; ++i) {
    result<std::unique_ptr<byte_stream>> stream = socket_stream::create(addresses.value());
    if (!stream) return stream.error();
    std::unique_ptr<byte_stream> used = std::move(stream).value();
    if (trust.tls) used = std::make_unique<secure_stream>(std::move(used), *trust.tls, server.host);
    made->connections_.push_back(std::make_unique<redis_connection>(redis_settings{.peer = peer,
                                                                                   .user = chosen.user,
                                                                                   .password = trust.password,
                                                                                   .database = chosen.database,
                                                                                   .timeout_ns = chosen.timeout_ns,
                                                                                   .lease_ns = chosen.lease_ns,
                                                                                   .writes = i == 0},
                                                                    std::move(used), made->session_, made->time_));
  }
  return made;
}

result<std::unique_ptr<backend>> redis_backend::open(const tcp_endpoint& server, const redis_options& chosen,
                                                     const redis_trust& trust, std::uint64_t patience_ns) {
  result<std::unique_ptr<redis_backend>> made = make(server, chosen, trust);
  if (!made) return made.error();
  if (result<void> connected = made.value()->connect(patience_ns); !connected) return connected.error();
  return std::unique_ptr<backend>(std::move(made).value());
}

result<std::unique_ptr<backend>> redis_backend::open_later(const tcp_endpoint& server, const redis_options& chosen,
                                                           const redis_trust& trust) {
  result<std::unique_ptr<redis_backend>> made = make(server, chosen, trust);
  if (!made) return made.error();
  made.value()->was_reached_.store(false);
  made.value()->blocks_ = std::make_unique<block_table>(block_table::most_capacity_slots);
  return std::unique_ptr<backend>(std::move(made).value());
}

redis_backend::redis_backend(std::string peer, std::string stem, const redis_options& chosen, const redis_trust& trust)
    : peer_(std::move(peer)), chosen_(chosen), trust_(trust), session_(std::move(stem)), owner_(getpid()) {}

redis_backend::~redis_backend() {
  if (connections_.empty()) return;
  if (getpid() != owner_) {
    // Nobody has told us of the fork. Sockets are closed without a sign, and what watches them is left alone: both are
    // shared with the parent.
    for (const std::unique_ptr<redis_connection>& connection : connections_) connection->restart_in_child();
    return;
  }
  if (in_child_) return;
  const lock_guard guard(connections_[0]->lock);
  connections_[0]->end_session(std::min(farewell_ns, chosen_.timeout_ns));
}

// It has said what it has room for, so blocks can be asked for.
void redis_backend::greet_late_server() {
  redis_connection& first = *connections_[0];
  if (first.away_since_ns() != 0) return;
  was_reached_.store(true);
  if (usable_slots() == 0) return log_line(log_level::error, "%s", has_no_room().message.c_str());
  blocks_->limit_capacity(usable_slots());
  const lock_guard guard(first.lock);
  first.set_control(blocks_.get());
}

std::uint64_t redis_backend::usable_slots() const {
  const std::uint64_t bytes = chosen_.capacity_bytes != 0 ? chosen_.capacity_bytes : session_.room_bytes();
  return std::min(bytes / page_bytes, block_table::most_capacity_slots);
}

error redis_backend::has_no_room() const {
  return {"far tier '" + peer_ + "' has no room; raise its maxmemory, or name another server", ENOSPC};
}

result<void> redis_backend::connect(std::uint64_t patience_ns) {
  redis_connection& first = *connections_[0];
  const std::uint64_t until_ns = time_.now_ns() + std::min(chosen_.timeout_ns, patience_ns);
  for (const std::unique_ptr<redis_connection>& connection : connections_) {
    const auto ready = [&connection] {
      connection->lock.assert_held();  // by wait_until()
      return connection->now() == redis_connection::phase::ready;
    };
    if (result<void> reached = wait_until(ready, *connection, until_ns); !reached) return reached.error();
  }
  if (usable_slots() == 0) return has_no_room();
  blocks_ = std::make_unique<block_table>(usable_slots());
  {
    const lock_guard guard(first.lock);
    first.set_control(blocks_.get());
  }
  // A full server is found out here too, but it may have room by the time that it is wanted.
  const result<void> stocked = wait_until([this] { return !blocks_->wants_blocks(); }, first, until_ns);
  if (stocked) measure_round_trip(until_ns);
  return stocked;
}

// The quickest of a few reads of a page. Where there is none to be had, it stays unknown.
void redis_backend::measure_round_trip(std::uint64_t until_ns) {
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

result<void> redis_backend::wait_until(const std::function<bool()>& reached, redis_connection& connection,
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
      if (connection.refused() || connection.failures() >= attempts || time_.now_ns() >= until_ns) {
        return cannot_open(connection);
      }
    }
    const std::uint64_t now_ns = time_.now_ns();
    const std::uint64_t pause_ns = std::max(std::min(next_ns, until_ns), now_ns + 1) - now_ns;
    const timespec sleep{static_cast<time_t>(pause_ns / 1'000'000'000), static_cast<long>(pause_ns % 1'000'000'000)};
    pollfd watched{.fd = descriptor, .events = POLLIN, .revents = 0};
    ppoll(&watched, 1, &sleep, nullptr);
  }
}

error redis_backend::cannot_open(const redis_connection& failed) const {
  std::string message = "far tier '" + peer_ + "' cannot be used: ";
  if (failed.failure_code() == 0) {
    return {message + "it does not answer; check the address, the network, and that Redis runs there", ETIMEDOUT};
  }
  message += failed.explanation();
  if (!failed.refused()) {
    message += failed.failure_code() == EACCES ? "; check 'ca', and that the certificate names this host"
                                               : "; check the address, and that Redis runs and listens there";
  }
  return {std::move(message), failed.failure_code()};
}

result<slot_id> redis_backend::allocate(std::size_t count) {
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
void redis_backend::nudge() {
  redis_connection& first = *connections_[0];
  if (!first.lock.try_lock()) return;
  const lock_guard guard(first.lock, std::adopt_lock);
  first.advance(nullptr);
}

void redis_backend::free(slot_id first, std::size_t count) {
  blocks_->free(first, count);
}

result<std::unique_ptr<channel>> redis_backend::open_channel(std::size_t depth) {
  const std::size_t readers = connections_.size() - 1;
  const std::size_t reads = readers == 0 ? 0 : 1 + next_channel_.fetch_add(1) % readers;
  return tcp_channel::open({connections_[reads].get(), connections_[0].get()}, *blocks_, session_, time_,
                           chosen_.timeout_ns, depth);
}

bool redis_backend::answers() const {
  const std::uint64_t away_since_ns = connections_[0]->away_since_ns();
  if (!was_reached_.load()) return false;
  return away_since_ns == 0 || time_.now_ns() <= away_since_ns + chosen_.timeout_ns;
}

std::uint64_t redis_backend::tend() {
  std::uint64_t next_ns = std::numeric_limits<std::uint64_t>::max();
  for (const std::unique_ptr<redis_connection>& connection : connections_) {
    if (!connection->lock.try_lock()) continue;
    const lock_guard guard(connection->lock, std::adopt_lock);
    next_ns = std::min(next_ns, connection->advance(nullptr));
  }
  if (!was_reached_.load()) greet_late_server();
  const std::uint64_t now_ns = time_.now_ns();
  return std::clamp(next_ns - std::min(next_ns, now_ns), shortest_pause_ns, longest_pause_ns);
}

// They go on to be renewed while the process lives.
void redis_backend::prepare_exit() {
  if (in_child_ || getpid() != owner_) return;
  redis_connection& first = *connections_[0];
  const std::uint64_t until_ns = time_.now_ns() + exit_patience_ns;
  while (time_.now_ns() < until_ns) {
    {
      const lock_guard guard(first.lock);
      if (first.shorten_leases(exit_lease_ns)) return;
    }
    const timespec pause{0, 1'000'000};
    pollfd watched{.fd = first.descriptor(), .events = POLLIN, .revents = 0};
    ppoll(&watched, 1, &pause, nullptr);
  }
}

void redis_backend::after_fork_in_child() {
  in_child_ = true;
  owner_ = getpid();
  session_.unlock_after_fork();
  blocks_->unlock_after_fork();
  for (const std::unique_ptr<redis_connection>& connection : connections_) connection->restart_in_child();
}

capacity redis_backend::report() const {
  return was_reached_.load() ? blocks_->report() : capacity{};
}

speed redis_backend::expected_speed() const {
  return {round_trip_ns_, usual_bytes_per_second};
}

std::string redis_backend::describe() const {
  return peer_;
}

}  // namespace far::backend
