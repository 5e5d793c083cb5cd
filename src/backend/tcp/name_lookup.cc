#include "backend/tcp/name_lookup.h"

#include <ares.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "platform/own_descriptors.h"
#include "platform/wait_for_events.h"

namespace far::backend {
namespace {

// Each of the machine's DNS servers is asked so often, and waited for so long; the second time for twice as long.
constexpr int attempts = 2;
constexpr int attempt_ms = 2000;
// All of them together, however many servers and search domains the machine has.
constexpr std::chrono::seconds longest_lookup{6};

// The sockets of c-ares are the runtime's: the program may not close them by mistake.
ares_socket_t open_socket(int family, int type, int protocol, void*) {
  return platform::own_descriptor(::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
}
int close_socket(ares_socket_t descriptor, void*) {
  platform::close_own_descriptor(descriptor);
  return 0;
}
int connect_socket(ares_socket_t descriptor, const sockaddr* to, ares_socklen_t bytes, void*) {
  return ::connect(descriptor, to, bytes);
}
ares_ssize_t receive(ares_socket_t descriptor, void* into, std::size_t bytes, int flags, sockaddr* from,
                     ares_socklen_t* from_bytes, void*) {
  return ::recvfrom(descriptor, into, bytes, flags, from, from_bytes);
}
ares_ssize_t send(ares_socket_t descriptor, const iovec* chunks, int count, void*) {
  return ::writev(descriptor, chunks, count);
}

constexpr ares_socket_functions own_sockets{open_socket, close_socket, connect_socket, receive, send};

}  // namespace

struct name_lookup::answer {
  bool is_there = false;
  int status = ARES_SUCCESS;
  std::vector<socket_address> addresses;

  static void take(void* self, int status, int /*timeouts*/, ares_addrinfo* found) {
    auto& into = *static_cast<answer*>(self);
    into.is_there = true;
    into.status = status;
    if (found == nullptr) return;
    for (const ares_addrinfo_node* node = found->nodes; node != nullptr; node = node->ai_next) {
      socket_address added;
      if (node->ai_addrlen > sizeof added.storage) continue;
      std::memcpy(&added.storage, node->ai_addr, node->ai_addrlen);
      added.bytes = node->ai_addrlen;
      into.addresses.push_back(added);
    }
    ares_freeaddrinfo(found);
  }
};

name_lookup::name_lookup(tcp_endpoint server, std::string dns_servers)
    : server_(std::move(server)), dns_servers_(std::move(dns_servers)) {
  static std::once_flag once;
  // Fails on other systems only.
  std::call_once(once, [] { static_cast<void>(ares_library_init(ARES_LIB_INIT_NONE)); });
}

name_lookup::~name_lookup() {
  cancel();
}

void name_lookup::begin() {
  cancel();
  answer_ = std::make_unique<answer>();
  until_ = std::chrono::steady_clock::now() + longest_lookup;
  ares_options options{};
  options.timeout = attempt_ms;
  options.tries = attempts;
  int status = ares_init_options(&channel_, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES);
  if (status != ARES_SUCCESS) channel_ = nullptr;
  if (status == ARES_SUCCESS && !dns_servers_.empty()) {
    status = ares_set_servers_ports_csv(channel_, dns_servers_.c_str());
  }
  if (status != ARES_SUCCESS) return answer::take(answer_.get(), status, 0, nullptr);
  ares_set_socket_functions(channel_, &own_sockets, nullptr);
  ares_addrinfo_hints wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = ARES_AI_NUMERICSERV;
  ares_getaddrinfo(channel_, server_.host.c_str(), std::to_string(server_.port).c_str(), &wanted, answer::take,
                   answer_.get());
}

std::optional<result<std::vector<socket_address>>> name_lookup::advance() {
  if (!answer_->is_there && channel_ != nullptr) {
    std::array<ares_socket_t, ARES_GETSOCK_MAXNUM> sockets;
    const int wanted = ares_getsock(channel_, sockets.data(), ARES_GETSOCK_MAXNUM);
    for (int i = 0; i < ARES_GETSOCK_MAXNUM; ++i) {
      const bool reads = ARES_GETSOCK_READABLE(wanted, i);
      const bool writes = ARES_GETSOCK_WRITABLE(wanted, i);
      if (!reads && !writes) continue;
      const auto events = static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
      pollfd watched{.fd = sockets[static_cast<std::size_t>(i)], .events = events, .revents = 0};
      if (platform::wait_for_events({&watched, 1}, 0) < 1) continue;
      const bool broken = (watched.revents & (POLLERR | POLLHUP)) != 0;
      ares_process_fd(channel_, reads && (broken || (watched.revents & POLLIN) != 0) ? watched.fd : ARES_SOCKET_BAD,
                      writes && (broken || (watched.revents & POLLOUT) != 0) ? watched.fd : ARES_SOCKET_BAD);
    }
    ares_process_fd(channel_, ARES_SOCKET_BAD, ARES_SOCKET_BAD);  // what has taken too long
  }
  const bool is_late = std::chrono::steady_clock::now() >= until_;
  if (!answer_->is_there && !is_late) return std::nullopt;
  if (!answer_->is_there) answer_->status = ARES_ETIMEOUT;
  const answer got = std::move(*answer_);
  cancel();
  if (got.status == ARES_SUCCESS && !got.addresses.empty()) return got.addresses;
  return error{std::string("the name ") + server_.host + " has no address now (" + ares_strerror(got.status) + ")",
               EHOSTUNREACH};
}

void name_lookup::cancel() {
  if (channel_ != nullptr) ares_destroy(std::exchange(channel_, nullptr));
  answer_.reset();
}

result<std::vector<socket_address>> look_up(const tcp_endpoint& server) {
  using namespace std::chrono_literals;
  name_lookup lookup(server);
  lookup.begin();
  for (;;) {
    std::optional<result<std::vector<socket_address>>> found = lookup.advance();
    if (!found) {
      std::this_thread::sleep_for(5ms);
    } else if (*found) {
      return std::move(*found);
    } else {
      return error{"memory server " + server.text() + ": its name cannot be resolved (" + found->error().message +
                       "); check the name, or write its address",
                   EHOSTUNREACH};
    }
  }
}

}  // namespace far::backend
