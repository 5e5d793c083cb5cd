#include "server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>
#include <unordered_map>
#include <vector>

namespace cached {
namespace {

struct connection {
  connection(descriptor to, store& items, server_facts& facts) : socket(std::move(to)), talk(items, facts) {}

  descriptor socket;
  session talk;
  std::uint32_t awaited = EPOLLIN;
  bool broken = false;
};

bool is_for_later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

// One of the server's threads.
class event_loop {
 public:
  event_loop(store& items, server_facts& facts, int listener, int stopping);
  ~event_loop() { facts_.connections -= connections_.size(); }
  void run();

 private:
  // Replies in a row for one connection, before others have their turn.
  static constexpr int turn = 8;

  void watch(int number, std::uint32_t events);
  void accept_all();
  void accept_one(descriptor accepted);
  void serve(connection& client, std::uint32_t events);
  void receive(connection& client);
  void send_output(connection& client);
  void await(connection& client);

  store& items_;
  server_facts& facts_;
  int listener_;
  int stopping_;
  descriptor epoll_;
  std::unordered_map<int, std::unique_ptr<connection>> connections_;
};

event_loop::event_loop(store& items, server_facts& facts, int listener, int stopping)
    : items_(items), facts_(facts), listener_(listener), stopping_(stopping), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_.get() < 0) throw std::runtime_error(fmt::format("epoll: {}", std::strerror(errno)));
  watch(stopping_, EPOLLIN);
  watch(listener_, EPOLLIN | EPOLLEXCLUSIVE);
}

void event_loop::watch(int number, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = number}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, number, &event) != 0) {
    throw std::runtime_error(fmt::format("epoll: {}", std::strerror(errno)));
  }
}

void event_loop::run() {
  std::array<epoll_event, 64> events;
  while (true) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const int number = events[static_cast<std::size_t>(i)].data.fd;
      if (number == stopping_) return;
      if (number == listener_) {
        accept_all();
        continue;
      }
      const auto found = connections_.find(number);
      // Closed, or replaced, earlier in this round: the next round knows better.
      if (found == connections_.end()) continue;
      connection& client = *found->second;
      serve(client, events[static_cast<std::size_t>(i)].events);
      if (client.broken || (client.talk.is_closing() && client.talk.output().empty())) {
        connections_.erase(found);
        --facts_.connections;
      }
    }
  }
}

void event_loop::accept_all() {
  while (true) {
    descriptor accepted(accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.get() >= 0) {
      accept_one(std::move(accepted));
      continue;
    }
    // No descriptors: a pause, for the listener would be reported again at once.
    if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return;
  }
}

void event_loop::accept_one(descriptor accepted) {
  const int number = accepted.get();
  ++facts_.all_connections;
  if (++facts_.connections > facts_.connection_limit) {
    --facts_.connections;
    ++facts_.rejected_connections;
    constexpr std::string_view refusal = "SERVER_ERROR Too many open connections\r\n";
    // Its only reply: that it may not arrive does not matter.
    [[maybe_unused]] const auto sent = send(number, refusal.data(), refusal.size(), MSG_NOSIGNAL);
    return;
  }
  const int on = 1;
  setsockopt(number, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  watch(number, EPOLLIN);
  connections_[number] = std::make_unique<connection>(std::move(accepted), items_, facts_);
}

void event_loop::serve(connection& client, std::uint32_t events) {
  if (client.talk.wants_input() && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive(client);
  for (int i = 0; i < turn && !client.broken; ++i) {
    client.talk.process();
    send_output(client);
    if (!client.talk.is_held_up() || !client.talk.output().empty()) break;
  }
  if (!client.broken) await(client);
}

void event_loop::receive(connection& client) {
  const std::span<char> room = client.talk.room();
  const ssize_t count = recv(client.socket.get(), room.data(), room.size(), 0);
  if (count > 0) {
    client.talk.received(static_cast<std::size_t>(count));
  } else if (count == 0 || !is_for_later(errno)) {
    client.broken = true;
  }
}

void event_loop::send_output(connection& client) {
  while (!client.talk.output().empty()) {
    const std::string_view output = client.talk.output();
    const ssize_t count = send(client.socket.get(), output.data(), output.size(), MSG_NOSIGNAL);
    if (count < 0) {
      client.broken = !is_for_later(errno);
      return;
    }
    client.talk.sent(static_cast<std::size_t>(count));
  }
}

void event_loop::await(connection& client) {
  const bool has_output = !client.talk.output().empty() || client.talk.is_held_up();
  // A client that does not read its replies is not read either.
  const std::uint32_t wanted = has_output ? EPOLLOUT : EPOLLIN;
  if (wanted == client.awaited) return;
  epoll_event event{.events = wanted, .data = {.fd = client.socket.get()}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.socket.get(), &event) != 0) {
    client.broken = true;
  } else {
    client.awaited = wanted;
  }
}

}  // namespace

server::server(const server_options& options)
    : items_(open_store(options.items)),
      port_(options.port),
      listener_(listen_at(options.address, port_)),
      stopping_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (stopping_.get() < 0) throw std::runtime_error(fmt::format("eventfd: {}", std::strerror(errno)));
  facts_.threads = options.threads;
  facts_.connection_limit = options.connection_limit;
}

void server::run() {
  std::vector<std::jthread> others;
  for (unsigned i = 1; i < facts_.threads; ++i) others.emplace_back([this] { serve(); });
  serve();
}

void server::serve() {
  event_loop(*items_, facts_, listener_.get(), stopping_.get()).run();
}

void server::stop() {
  constexpr std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(stopping_.get(), &one, sizeof one);
}

}  // namespace cached
