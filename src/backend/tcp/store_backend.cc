#include "backend/tcp/store_backend.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "backend/tcp/tcp_channel.h"
#include "base/log.h"
#include "platform/wait_for_events.h"

namespace far::backend {
namespace {

// How often a quiet connection is looked at, at least.
constexpr std::uint64_t longest_pause_ns = 100'000'000;
constexpr std::uint64_t shortest_pause_ns = 1'000'000;

// How often files of secrets are looked at.
constexpr std::uint64_t renewal_ns = 100'000'000;

// The assumed bandwidth of a network that nobody has measured: 10 Gbit/s.
constexpr std::uint64_t usual_bytes_per_second = 1'250'000'000;

}  // namespace

store_backend::store_backend(std::string peer, const char* server_program, std::uint64_t timeout_ns,
                             store_secrets secrets, const platform::clock& time)
    : peer_(std::move(peer)),
      server_program_(server_program),
      timeout_ns_(timeout_ns),
      time_(time),
      secret_name_(secrets.name),
      tls_(std::move(secrets.tls)),
      secret_(std::move(secrets.file), secrets.read),
      owner_(getpid()) {}

result<void> store_backend::connect(std::uint64_t patience_ns) {
  store_connection& first = *connections_[0];
  const std::uint64_t until_ns = time_.now_ns() + std::min(timeout_ns_, patience_ns);
  for (store_connection* const connection : connections_) {
    const auto ready = [&connection] {
      connection->lock.assert_held();  // by wait_until()
      return connection->now() == store_connection::phase::ready;
    };
    if (result<void> reached = wait_until(ready, *connection, until_ns); !reached) return reached.error();
  }
  if (usable_slots() == 0) return has_no_room();
  lend(usable_slots());
  // A full server is noticed here, too, but it may have room when that is needed.
  const result<void> stocked = wait_until([this] { return !blocks_->wants_blocks(); }, first, until_ns);
  if (stocked) measure_round_trip(until_ns);
  return stocked;
}

void store_backend::connect_later() {
  was_reached_.store(false);
  blocks_ = std::make_unique<block_table>(block_table::most_capacity_slots);
}

void store_backend::lend(std::uint64_t slots) {
  blocks_ = std::make_unique<block_table>(std::min(slots, block_table::most_capacity_slots));
  const lock_guard guard(connections_[0]->lock);
  connections_[0]->set_control(blocks_.get());
}

// The store has been reached at last: blocks can be asked for.
void store_backend::greet_late_store() {
  store_connection& first = *connections_[0];
  if (first.away_since_ns() != 0) return;
  was_reached_.store(true);
  if (usable_slots() == 0) return log_line(log_level::error, "%s", has_no_room().message.c_str());
  blocks_->limit_capacity(std::min(usable_slots(), block_table::most_capacity_slots));
  const lock_guard guard(first.lock);
  first.set_control(blocks_.get());
}

// The quickest of a few reads of a page. If none succeeds, it stays unknown.
void store_backend::measure_round_trip(std::uint64_t until_ns) {
  constexpr int attempts = 8;
  const result<std::unique_ptr<channel>> queue = open_channel(1);
  const result<slot_id> slot = blocks_->allocate(1, session().epoch());
  std::vector<std::byte> page(page_bytes);
  for (int i = 0; i < attempts && queue && slot; ++i) {
    const request one{.op = operation::read, .slot = slot.value(), .buffer = page.data()};
    const std::uint64_t asked_ns = time_.now_ns();
    completion done;
    if (asked_ns >= until_ns || queue.value()->submit({&one, 1}) == 0) break;
    // It ends by its own deadline, if not before.
    while (queue.value()->poll({&done, 1}) == 0) queue.value()->wait(timeout_ns_);
    if (done.error_code != 0) break;
    const std::uint64_t took_ns = time_.now_ns() - asked_ns;
    round_trip_ns_ = round_trip_ns_ == 0 ? took_ns : std::min(round_trip_ns_, took_ns);
  }
  if (slot) blocks_->free(slot.value(), 1);
}

result<void> store_backend::wait_until(const std::function<bool()>& reached, store_connection& connection,
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
    pollfd watched{.fd = descriptor, .events = POLLIN, .revents = 0};
    platform::wait_for_events({&watched, 1}, static_cast<std::int64_t>(pause_ns));
  }
}

error store_backend::cannot_open(const store_connection& failed) const {
  std::string message = "far tier '" + peer_ + "' cannot be used: ";
  if (failed.failure_code() == 0) {
    return {message + "it does not answer; check the address, the network, and that " + server_program_ + " runs there",
            ETIMEDOUT};
  }
  message += failed.explanation();
  if (!failed.refused()) {
    message += failed.failure_code() == EACCES
                   ? "; check 'ca', and that the certificate names this host"
                   : std::string("; check the address, and that ") + server_program_ + " runs and listens there";
  }
  return {std::move(message), failed.failure_code()};
}

result<slot_id> store_backend::allocate(std::size_t count) {
  result<slot_id> first = blocks_->allocate(count, session().epoch());
  const bool waiting = !first && first.error().code == EAGAIN;
  if (!waiting && !blocks_->below_reserve()) return first;
  nudge();
  if (!waiting) return first;
  const std::uint64_t away_since_ns = connections_[0]->away_since_ns();
  if (away_since_ns != 0 && time_.now_ns() > away_since_ns + timeout_ns_) return out_of_slots();
  return first;
}

// Blocks are asked for when the first connection is advanced.
void store_backend::nudge() {
  store_connection& first = *connections_[0];
  if (!first.lock.try_lock()) return;
  const lock_guard guard(first.lock, std::adopt_lock);
  first.advance(nullptr);
}

void store_backend::free(slot_id first, std::size_t count) {
  blocks_->free(first, count);
}

result<std::unique_ptr<channel>> store_backend::open_channel(std::size_t depth) {
  const std::size_t readers = connections_.size() - 1;
  const std::size_t reads = readers == 0 ? 0 : 1 + next_channel_.fetch_add(1) % readers;
  return tcp_channel::open({connections_[reads], connections_[0]}, *blocks_, session(), time_, timeout_ns_, depth);
}

bool store_backend::answers() const {
  const std::uint64_t away_since_ns = connections_[0]->away_since_ns();
  if (!was_reached_.load()) return false;
  return away_since_ns == 0 || time_.now_ns() <= away_since_ns + timeout_ns_;
}

// An operator who replaces a token or a certificate on the server replaces the program's files, too, and need not start
// the program again. Disks may be slow, and the locks of connections are spun on, so files are read without them. A
// connection that begins again meanwhile shows what it knows, is refused at worst, and tries again.
void store_backend::renew_secrets() {
  const std::uint64_t now_ns = time_.now_ns();
  if (now_ns < renew_at_ns_.load() || renewing_.exchange(true)) return;
  renew_at_ns_.store(now_ns + renewal_ns);
  const std::optional<result<std::string>> secret = secret_.changed();
  const result<bool> trusted = tls_ ? tls_->refresh() : result<bool>(false);
  renewing_.store(false);
  if (!trusted) {
    log_line(log_level::warning, "%s; going on with the certificates of before", trusted.error().message.c_str());
  }
  if (secret && !*secret) {
    log_line(log_level::warning, "far tier %s: %s; going on with the %s of before", peer_.c_str(),
             secret->error().message.c_str(), secret_name_);
  }
  if (!secret || !*secret) return;
  for (store_connection* const connection : connections_) {
    const lock_guard guard(connection->lock);
    connection->show(secret->value());
  }
}

std::uint64_t store_backend::tend() {
  renew_secrets();
  std::uint64_t next_ns = std::numeric_limits<std::uint64_t>::max();
  for (store_connection* const connection : connections_) {
    if (!connection->lock.try_lock()) continue;
    const lock_guard guard(connection->lock, std::adopt_lock);
    next_ns = std::min(next_ns, connection->advance(nullptr));
  }
  if (!was_reached_.load()) greet_late_store();
  const std::uint64_t now_ns = time_.now_ns();
  const std::uint64_t until_next_ns = std::min(next_ns - std::min(next_ns, now_ns), tend_more());
  return std::clamp(until_next_ns, shortest_pause_ns, longest_pause_ns);
}

// The first connection is the last to go, since it gives the blocks back. A store that is away is not waited for: what
// it keeps for us ends with its lease.
bool store_backend::retire() {
  if (in_child_ || !owns_connections()) return true;
  if (blocks_ != nullptr && !blocks_->give_up() && answers()) return false;
  for (std::size_t i = connections_.size(); i-- > 1;) {
    const lock_guard guard(connections_[i]->lock);
    connections_[i]->retire();
  }
  store_connection& first = *connections_[0];
  if (first.away_since_ns() != 0 && answers()) return false;
  const lock_guard guard(first.lock);
  if (first.now() == store_connection::phase::ready && !say_farewell()) return false;
  was_reached_.store(true);  // nobody greets it any more
  first.retire();
  return true;
}

const platform::clock& store_backend::machine_clock() {
  static const platform::monotonic_clock time;
  return time;
}

void store_backend::become_child() {
  in_child_ = true;
  owner_ = getpid();
  renewing_.store(false);  // the thread that did it is the parent's
  blocks_->unlock_after_fork();
}

bool store_backend::owns_connections() const {
  return getpid() == owner_;
}

capacity store_backend::report() const {
  return was_reached_.load() ? blocks_->report() : capacity{};
}

speed store_backend::expected_speed() const {
  return {round_trip_ns_, usual_bytes_per_second};
}

}  // namespace far::backend
