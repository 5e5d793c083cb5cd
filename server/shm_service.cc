#include "server/shm_service.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/backoff.h"
#include "platform/clock.h"
#include "server/crowd.h"
#include "server/event_log.h"

namespace far::server {
namespace {

constexpr std::uint64_t millisecond_ns = 1'000'000;
// How often memory is checked for pages that were not granted, and leases and freed blocks are handled.
constexpr std::uint64_t tick_ns = 100 * millisecond_ns;
// How often sockets are polled while the rings keep the thread busy.
constexpr std::uint64_t sockets_ns = 200'000;
constexpr std::size_t events_at_once = 64;
constexpr unsigned most_accepted = 64;

std::uint64_t now_ns() {
  return platform::monotonic_clock().now_ns();
}

}  // namespace

result<std::unique_ptr<shm_service>> shm_service::start(const shm_service_options& chosen) {
  result<std::unique_ptr<shm_socket>> socket = shm_socket::listen(chosen.name, !chosen.settings.tokens->empty());
  if (!socket) return socket.error();
  std::unique_ptr<shm_service> created(new shm_service(chosen, std::move(socket).value()));
  if (result<void> prepared = created->prepare(); !prepared) return prepared.error();
  // Signals go to the main thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  created->thread_ = std::thread([service = created.get()] { service->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return created;
}

shm_service::shm_service(const shm_service_options& chosen, std::unique_ptr<shm_socket> socket)
    : chosen_(chosen), socket_(std::move(socket)) {}

result<void> shm_service::prepare() {
  events_ = epoll_create1(EPOLL_CLOEXEC);
  waker_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  epoll_event wanted{.events = EPOLLIN, .data = {.ptr = this}};
  if (events_ < 0 || waker_ < 0 || epoll_ctl(events_, EPOLL_CTL_ADD, waker_, &wanted) != 0) {
    return error{std::string("--shm: no descriptor left: ") + std::strerror(errno), errno};
  }
  listen(true);
  return {};
}

shm_service::~shm_service() {
  stopping_.store(true);
  const std::uint64_t one = 1;
  if (waker_ >= 0) static_cast<void>(!write(waker_, &one, sizeof one));
  if (thread_.joinable()) thread_.join();
  if (waker_ >= 0) close(waker_);
  if (events_ >= 0) close(events_);
}

void shm_service::listen(bool wanted) {
  if (wanted == listening_) return;
  epoll_event event{.events = EPOLLIN, .data = {.ptr = socket_.get()}};
  const int code = epoll_ctl(events_, wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, socket_->descriptor(), &event);
  if (code == 0) listening_ = wanted;  // else tick() tries again
}

// One thread polls the rings of all clients. While there is traffic it spins and looks at the sockets only now and
// then, because a system call costs more than a request; without traffic it sleeps and is woken by a bell.
void shm_service::run() {
  pthread_setname_np(pthread_self(), "farheapd-shm");
  quiescent_states::reader reading(chosen_.settings.lent->readers());
  std::uint64_t active_ns = now_ns();
  while (!stopping_.load(std::memory_order_relaxed)) {
    reading.quiet();
    const std::uint64_t turn_ns = now_ns();
    bool progress = false;
    std::uint64_t due_at_ns = turn::never;
    for (const auto& peer : peers_) {
      progress |= peer->work(turn_ns);
      due_at_ns = std::min(due_at_ns, peer->due_at_ns(turn_ns));
    }
    const std::uint64_t current_ns = now_ns();
    if (current_ns >= next_tick_ns_) tick(current_ns);
    if (progress) active_ns = current_ns;
    const bool sleepy = current_ns - active_ns >= chosen_.spin_ns;
    if (!sleepy && current_ns - looked_at_sockets_ns_ < sockets_ns) {
      if (!progress) cpu_relax();
      continue;
    }
    if (sleepy) {
      sleep(reading, due_at_ns);
    } else {
      take_events(0);
    }
    remove_ended(now_ns());
  }
  for (const auto& peer : peers_) {
    if (peer->memory() != nullptr) peer->memory()->keep_bytes();
  }
  for (const auto& peer : peers_) {
    peer->end(close_reason::stopped);
    peer->leave(now_ns(), nullptr);
  }
  peers_.clear();
}

void shm_service::sleep(quiescent_states::reader& reading, std::uint64_t due_at_ns) {
  bool may_sleep = true;
  for (const auto& peer : peers_) may_sleep &= peer->doze();
  std::uint64_t timeout_ns = 0;
  if (may_sleep) {
    reading.offline();
    const std::uint64_t current_ns = now_ns();
    timeout_ns = std::min(due_at_ns - std::min(due_at_ns, current_ns), tick_ns);
  }
  take_events(timeout_ns);
  for (const auto& peer : peers_) peer->awake();
}

// poll() takes the time in nanoseconds: a device is looked at again sooner than in a millisecond.
void shm_service::take_events(std::uint64_t timeout_ns) {
  std::array<epoll_event, events_at_once> events;
  if (timeout_ns > 0) {
    pollfd watched{events_, POLLIN, 0};
    const timespec timeout{0, static_cast<long>(timeout_ns)};
    static_cast<void>(ppoll(&watched, 1, &timeout, nullptr));
  }
  const int count = epoll_wait(events_, events.data(), static_cast<int>(events.size()), 0);
  looked_at_sockets_ns_ = now_ns();
  for (int i = 0; i < count; ++i) {
    void* const source = events[static_cast<std::size_t>(i)].data.ptr;
    if (source == this) continue;  // stopping_ is set
    if (source == socket_.get()) {
      accept_some(looked_at_sockets_ns_);
    } else {
      static_cast<shm_peer*>(source)->on_socket(looked_at_sockets_ns_);
    }
  }
}

// A flood of newcomers must not keep the thread from the rings of the others; the rest waits for the next turn. When
// there are no more descriptors, listening is suspended until the next tick.
void shm_service::accept_some(std::uint64_t current_ns) {
  for (unsigned accepted = 0; accepted < most_accepted; ++accepted) {
    const int socket = accept4(socket_->descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // No descriptor is left: pause until the next tick, because this thread would otherwise retry forever.
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        log_limited(std::string("shared memory: cannot accept a client: ") + std::strerror(errno), current_ns);
        listen(false);
      }
      return;
    }
    make_room_for_newcomers();
    peers_.push_back(std::make_unique<shm_peer>(chosen_.settings, counters_, served_, socket, current_ns));
    epoll_event wanted{.events = EPOLLIN, .data = {.ptr = peers_.back().get()}};
    if (epoll_ctl(events_, EPOLL_CTL_ADD, socket, &wanted) != 0) peers_.back()->end(close_reason::peer_gone);
  }
}

// One that is sent away here is removed before others are accepted again.
void shm_service::make_room_for_newcomers() {
  crowd strangers;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (!peers_[i]->is_over() && peers_[i]->memory() == nullptr) strangers.add(peers_[i]->user(), i, i);
  }
  if (strangers.size() >= most_strangers) peers_[strangers.surplus()]->end(close_reason::late_handshake);
}

void shm_service::tick(std::uint64_t current_ns) {
  store& lent = *chosen_.settings.lent;
  for (const auto& peer : peers_) peer->check(current_ns);
  left_over_.look(lent);
  lent.expire(current_ns);
  const bool more = lent.reclaim() > 0;
  listen(true);
  next_tick_ns_ = current_ns + (more ? millisecond_ns : tick_ns);
}

void shm_service::revoke_session(const shm_peer& revoked) {
  if (revoked.memory() == nullptr) return;
  for (const auto& peer : peers_) {
    if (peer->memory() != revoked.memory()) continue;
    peer->revoke();
    peer->end(close_reason::fenced);
  }
}

void shm_service::remove_ended(std::uint64_t current_ns) {
  if (std::none_of(peers_.begin(), peers_.end(), [](const auto& peer) { return peer->is_over(); })) return;
  for (const auto& peer : peers_) {
    if (!peer->is_over() || !is_misbehaviour(peer->reason())) continue;
    log_limited(peer->describe() + ": connection ended: " + name_of(peer->reason()), current_ns);
    revoke_session(*peer);
  }
  for (const auto& peer : peers_) {
    if (peer->is_over()) peer->leave(current_ns, &left_over_);
  }
  std::erase_if(peers_, [](const auto& peer) { return peer->is_over(); });
}

}  // namespace far::server
