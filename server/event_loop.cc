#include "server/event_loop.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "platform/clock.h"
#include "platform/processors.h"
#include "server/address.h"
#include "server/crowd.h"
#include "server/event_log.h"

namespace far::server {
namespace {

// How often every connection is checked, for its deadlines and for fences.
constexpr std::uint64_t look_ns = 50'000'000;
constexpr std::uint64_t idle_look_ns = 1'000'000'000;  // without connections

// A connection that was busy gives its buffers' memory back after so long.
constexpr std::uint64_t idle_ns = 1'000'000'000;

constexpr int drain_orders = 1;
constexpr int end_orders = 2;

std::uint64_t now() {
  return platform::monotonic_clock().now_ns();
}

}  // namespace

event_loop::event_loop(const loop_settings& settings, quiescent_states& readers)
    : settings_(settings), readers_(readers), all_(settings.most_connections + most_turned_away) {
  const auto count = static_cast<std::uint32_t>(all_.size());
  for (std::uint32_t number = count; number-- > 0;) unused_.push_back(number);
  to_serve_.reserve(count);
  due_.reserve(count);
  thread_ = std::thread([this] { run(); });
}

event_loop::~event_loop() {
  thread_.join();
  for (const newcomer& arrival : newcomers_) close(arrival.socket);
  for (const newcomer& arrival : waiting_) close(arrival.socket);
}

void event_loop::adopt(int socket, std::string peer) {
  {
    const lock_guard guard(newcomers_lock_);
    newcomers_.push_back({.socket = socket, .peer = std::move(peer)});
    has_newcomers_.store(true);
  }
  const lock_guard guard(transport_lock_);
  if (transport_) transport_->wake();
}

void event_loop::drain() {
  int running = 0;
  orders_.compare_exchange_strong(running, drain_orders);
  const lock_guard guard(transport_lock_);
  if (transport_) transport_->wake();
}

void event_loop::end_now() {
  orders_.store(end_orders);
  const lock_guard guard(transport_lock_);
  if (transport_) transport_->wake();
}

// The transport is created on this thread, because an io_uring with a single issuer belongs to the thread that opens
// it. A waiting loop is offline with regard to quiescent states, so that nobody waits for a sleeping loop.
void event_loop::run() {
  {
    const auto count = static_cast<std::uint32_t>(all_.size());
    result<std::unique_ptr<transport>> created =
        settings_.use_io_uring ? make_ring_transport(count) : make_epoll_transport(count);
    if (!created) {
      log_event(created.error().message + "; using epoll, which is slower", log_level::warning);
      created = make_epoll_transport(count);
    }
    FAR_CHECK(created.ok(), "an event loop got neither io_uring nor epoll; raise the limit on descriptors (ulimit -n)");
    const lock_guard guard(transport_lock_);
    transport_ = std::move(created).value();
  }
  quiescent_states::reader reader(readers_);
  std::array<transport::event, 256> events;
  const std::uint64_t spin_ns = platform::has_several_processors() ? settings_.spin_ns : 0;
  std::uint64_t last_event_ns = 0;
  for (;;) {
    const std::uint64_t before_ns = now();
    const std::uint64_t sleep = before_ns - last_event_ns < spin_ns ? 0 : sleep_ns(before_ns);
    if (sleep > 0) reader.offline();
    const std::size_t count = transport_->wait(events, sleep);
    reader.quiet();
    const std::uint64_t now_ns = now();
    if (count > 0) last_event_ns = now_ns;
    for (std::size_t i = 0; i < count; ++i) on_event(events[i], now_ns);
    if (!waiting_.empty()) take_waiting(now_ns);
    if (has_newcomers_.load(std::memory_order_relaxed)) take_newcomers(now_ns);
    obey_orders();
    if (now_ns >= look_at_ns_) look_after_all(now_ns);
    if (now_ns >= due_at_ns_) touch_due(now_ns);
    // serve() fills due_ for a later turn, and does not change to_serve_.
    for (const std::uint32_t number : to_serve_) serve(number, now_ns);
    to_serve_.clear();
    if (orders_.load() == end_orders && open_count_.load() == 0) break;
  }
  reader.offline();
  ended_.store(true);
}

std::uint64_t event_loop::sleep_ns(std::uint64_t now_ns) const {
  std::uint64_t until = look_at_ns_;
  until = std::min(until, due_at_ns_);
  return until > now_ns ? until - now_ns : 0;
}

void event_loop::take_newcomers(std::uint64_t now_ns) {
  std::vector<newcomer> arrived;
  {
    const lock_guard guard(newcomers_lock_);
    arrived.swap(newcomers_);
    has_newcomers_.store(false);
  }
  for (newcomer& arrival : arrived) {
    make_room_for_newcomers();
    arrival.since_ns = now_ns;
    if (may_wait(arrival, now_ns) && waiting_.size() < most_waiting) {
      waiting_.push_back(std::move(arrival));
    } else {
      admit(arrival, now_ns);
    }
  }
}

// A turn has passed since they were looked at last, in which connections may have been closed.
void event_loop::take_waiting(std::uint64_t now_ns) {
  std::erase_if(waiting_, [&](newcomer& arrival) {
    const bool waits = may_wait(arrival, now_ns);
    if (!waits) admit(arrival, now_ns);
    return !waits;
  });
}

// A program that ends and one that begins come in any order: the end of the first is often seen last.
bool event_loop::may_wait(const newcomer& arrived, std::uint64_t now_ns) const {
  return is_full() && obeyed_ != end_orders && now_ns - arrived.since_ns < settings_.place_patience_ns;
}

// Those that are turned away have numbers of their own.
bool event_loop::is_full() const {
  return all_.size() - unused_.size() - turned_away_ >= settings_.most_connections;
}

// Connections are refused here and not by closing the listener, so that the refusal is logged and the peer is told why.
// Of a crowd of them, only some are told.
void event_loop::admit(newcomer& arrived, std::uint64_t now_ns) {
  const bool is_one_too_many = is_full();
  if (is_one_too_many && obeyed_ != end_orders) {
    log_limited("too many connections; refused " + arrived.peer, now_ns, log_level::warning, {.peer = arrived.peer});
  }
  if (unused_.empty() || obeyed_ == end_orders) {
    close(arrived.socket);
    return;
  }
  result<std::unique_ptr<connection>> accepted =
      connection::create(*settings_.protocol, counters_, settings_.security, now_ns, network_of(arrived.socket));
  if (!accepted) {
    log_limited(arrived.peer + ": " + accepted.error().message, now_ns);
    close(arrived.socket);
    return;
  }
  const std::uint32_t number = unused_.back();
  unused_.pop_back();
  served& fresh = all_[number];
  fresh = {};
  fresh.talk = std::move(accepted).value();
  if (obeyed_ == drain_orders) fresh.talk->messages().drain();
  if (is_one_too_many) turn_away(fresh);
  fresh.peer = std::move(arrived.peer);
  fresh.socket = arrived.socket;
  fresh.active_at_ns = now_ns;
  transport_->add(number, fresh.socket);
  open_count_.fetch_add(1, std::memory_order_relaxed);
  look_at_ns_ = std::min(look_at_ns_, now_ns + look_ns);
  touch(number);
}

void event_loop::turn_away(served& surplus) {
  surplus.is_turned_away = true;
  ++turned_away_;
  surplus.talk->messages().turn_away("too many connections: the server has " +
                                     std::to_string(settings_.most_connections) +
                                     " for each thread; end programs that use it, give them fewer (connections=), or "
                                     "start it with more --threads");
}

void event_loop::make_room_for_newcomers() {
  crowd strangers;
  for (std::uint32_t number = 0; number < all_.size(); ++number) {
    const served& client = all_[number];
    if (!client.talk || client.closing || client.is_turned_away) continue;
    // Those that were sent away a moment ago are on their way out.
    if (client.talk->messages().is_over() || !client.talk->messages().is_stranger()) continue;
    strangers.add(client.talk->messages().network(), number, client.active_at_ns);
  }
  if (strangers.size() < most_strangers && !(is_full() && strangers.size() > 0)) return;
  const auto surplus = static_cast<std::uint32_t>(strangers.surplus());
  all_[surplus].talk->messages().end(close_reason::late_handshake);
  touch(surplus);
}

void event_loop::touch(std::uint32_t number) {
  if (all_[number].touched) return;
  all_[number].touched = true;
  to_serve_.push_back(number);
}

// Those whose time has not come stay: a thousand clients that wait for their tenant's rate cost others nothing.
void event_loop::touch_due(std::uint64_t now_ns) {
  due_at_ns_ = protocol::never;
  std::erase_if(due_, [&](std::uint32_t number) {
    served& whose = all_[number];
    whose.listed = whose.talk && whose.due_at_ns > now_ns;
    if (whose.listed) {
      due_at_ns_ = std::min(due_at_ns_, whose.due_at_ns);
    } else if (whose.talk) {
      touch(number);
    }
    return !whose.listed;
  });
}

// Only records what happened. Connections are served after all events of a turn, so that each is served once however
// many events it had.
void event_loop::on_event(const transport::event& completion, std::uint64_t now_ns) {
  if (completion.kind == transport::motion::woken) return;
  served& whose = all_[completion.connection];
  const bool received = completion.kind == transport::motion::received;
  (received ? whose.receiving : whose.sending) = false;
  touch(completion.connection);
  // The end of a transfer that was interrupted by a signal, say, is only a reason to start it again.
  if (completion.outcome == -EINTR || completion.outcome == -EAGAIN) return;
  if (completion.outcome < 0 || (received && completion.outcome == 0)) {
    whose.talk->messages().end(close_reason::peer_gone);
    return;
  }
  const auto bytes = static_cast<std::size_t>(completion.outcome);
  whose.active_at_ns = now_ns;
  if (received) {
    whose.talk->received(bytes, now_ns);
    if (whose.waiting_since_ns == 0) whose.waiting_since_ns = now_ns;
  } else {
    whose.talk->sent(bytes, now_ns);
    measure(whose, now_ns);
  }
}

// The replies to all requests answered so far have been sent. These requests arrived at waiting_since_ns or later.
void event_loop::measure(served& whose, std::uint64_t now_ns) {
  const protocol& messages = whose.talk->messages();
  if (!messages.to_send().empty() || whose.waiting_since_ns == 0) return;
  const std::uint64_t answers = messages.answered() - whose.measured;
  if (answers > 0) counters_.latency.add(now_ns - whose.waiting_since_ns, answers);
  whose.measured = messages.answered();
  whose.waiting_since_ns = 0;
}

// Remaining work waits for the next turn, so that a busy connection does not starve the others.
void event_loop::serve(std::uint32_t number, std::uint64_t now_ns) {
  served& whose = all_[number];
  whose.touched = false;
  if (!whose.talk) return;
  connection& talk = *whose.talk;
  talk.work(now_ns);
  if (talk.is_done(now_ns) || whose.closing) return close_down(number, now_ns);
  if (!whose.sending) {
    const std::span<const std::byte> out = talk.to_send();
    whose.sending = !out.empty();
    if (whose.sending) transport_->send(number, out);
  }
  if (!whose.receiving) {
    const std::span<std::byte> space = talk.receive_space();
    whose.receiving = !space.empty();
    if (whose.receiving) transport_->receive(number, space);
  }
  whose.due_at_ns = talk.next_work_ns();
  if (whose.due_at_ns >= look_at_ns_) return;
  due_at_ns_ = std::min(due_at_ns_, whose.due_at_ns);
  if (!whose.listed) due_.push_back(number);
  whose.listed = true;
}

// The kernel may still write into the receive buffer or read from the send buffer, so the connection is destroyed only
// after both transfers have reported.
void event_loop::close_down(std::uint32_t number, std::uint64_t now_ns) {
  served& whose = all_[number];
  if (!whose.closing) {
    whose.closing = true;
    const bool is_handed_over = !whose.receiving && !whose.sending && whose.talk->hand_over(whose.socket);
    // Transfers under way end now, each with an event.
    if (!is_handed_over) shutdown(whose.socket, SHUT_RDWR);
  }
  if (whose.receiving || whose.sending) return;
  const protocol& messages = whose.talk->messages();
  const log_level how = is_misbehaviour(messages.reason()) ? log_level::warning : log_level::debug;
  if (is_logged(how)) {
    log_limited(std::string(name_of(messages.reason())) + ": ended the connection of " + messages.describe() + " at " +
                    whose.peer,
                now_ns, how, messages.party(whose.peer));
  }
  transport_->remove(number);
  close(whose.socket);
  whose.talk->messages().leave(now_ns);
  const bool is_listed = whose.listed;
  if (whose.is_turned_away) --turned_away_;
  whose = {};
  whose.listed = is_listed;
  unused_.push_back(number);
  open_count_.fetch_sub(1, std::memory_order_relaxed);
}

void event_loop::look_after_all(std::uint64_t now_ns) {
  look_at_ns_ = now_ns + (open_count_.load(std::memory_order_relaxed) > 0 ? look_ns : idle_look_ns);
  for (std::uint32_t number = 0; number < all_.size(); ++number) {
    served& client = all_[number];
    if (!client.talk) continue;
    touch(number);
    const bool idle = !client.sending && now_ns - client.active_at_ns >= idle_ns;
    if (idle) client.talk->messages().release_memory();
  }
}

void event_loop::obey_orders() {
  const int orders = orders_.load(std::memory_order_relaxed);
  if (orders == obeyed_) return;
  obeyed_ = orders;
  for (std::uint32_t number = 0; number < all_.size(); ++number) {
    if (!all_[number].talk) continue;
    protocol& messages = all_[number].talk->messages();
    if (orders == drain_orders) {
      messages.drain();
    } else {
      messages.end(close_reason::stopped);
    }
    touch(number);
  }
}

}  // namespace far::server
