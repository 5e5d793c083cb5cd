#include "backend/tcp/socket_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "platform/own_descriptors.h"
#include "platform/wait_for_events.h"

namespace far::backend {
namespace {

// Enough for a batch of evictions or a prefetch window to be sent without waiting for the other side.
constexpr int buffer_bytes = 4 << 20;

void close_owned(int descriptor) {
  if (descriptor < 0) return;
  platform::disown_descriptor(descriptor);
  ::close(descriptor);
}

int make_watch() {
  return platform::own_descriptor(epoll_create1(EPOLL_CLOEXEC));
}

// The kernel grows buffers by itself unless their size is set. Setting it the usual way stops that, and cuts the size
// to a small limit. So it is set by force, which takes CAP_NET_ADMIN, or not at all.
void tune(int socket) {
  const int one = 1;
  // Failures cost speed only.
  static_cast<void>(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
  static_cast<void>(setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &buffer_bytes, sizeof buffer_bytes));
  static_cast<void>(setsockopt(socket, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes));
}

msghdr message_of(std::span<const iovec> chunks) {
  msghdr header{};
  header.msg_iov = const_cast<iovec*>(chunks.data());  // sendmsg and recvmsg only read the list
  header.msg_iovlen = chunks.size();
  return header;
}

}  // namespace

result<std::unique_ptr<byte_stream>> socket_stream::create(std::shared_ptr<const server_addresses> addresses) {
  const int watch = make_watch();
  if (watch < 0) {
    return error{std::string("no descriptor for a connection (") + std::strerror(errno) + "); raise ulimit -n", errno};
  }
  return std::unique_ptr<byte_stream>(new socket_stream(std::move(addresses), watch));
}

socket_stream::socket_stream(std::shared_ptr<const server_addresses> addresses, int watch)
    : addresses_(std::move(addresses)), watch_(watch) {}

socket_stream::~socket_stream() {
  close();
  close_owned(watch_);
}

void socket_stream::use_server(std::string_view host, std::uint16_t port, std::string_view) {
  const socket_address found = address_in_digits(host, port);
  if (found.bytes > 0) moved_to_ = found;
}

int socket_stream::connect() {
  address_ = next_address_;
  next_address_ = addresses_->after(address_);
  const socket_address to = moved_to_.bytes > 0 ? moved_to_ : addresses_->at(address_);
  if (to.bytes == 0) return EHOSTUNREACH;  // no lookup has found an address yet
  socket_ =
      platform::own_descriptor(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (socket_ < 0) return errno;
  tune(socket_);
  connecting_ = true;
  watching_for_room_ = true;
  epoll_event events{.events = EPOLLIN | EPOLLOUT, .data = {}};
  if (epoll_ctl(watch_, EPOLL_CTL_ADD, socket_, &events) != 0) return errno;
  int failed = 0;
  do {
    failed = ::connect(socket_, reinterpret_cast<const sockaddr*>(&to.storage), to.bytes);
  } while (failed != 0 && errno == EINTR);
  return failed == 0 || errno == EINPROGRESS || errno == EALREADY || errno == EISCONN ? 0 : errno;
}

int socket_stream::finish_connecting() {
  if (socket_ < 0) return ENOTCONN;
  if (!connecting_) return 0;
  pollfd ready{.fd = socket_, .events = POLLOUT, .revents = 0};
  if (platform::wait_for_events({&ready, 1}, 0) < 1) return EINPROGRESS;
  int failure = 0;
  socklen_t bytes = sizeof failure;
  if (getsockopt(socket_, SOL_SOCKET, SO_ERROR, &failure, &bytes) != 0) return errno;
  if (failure != 0) return failure;
  connecting_ = false;
  watch_for_room(false);
  return 0;
}

std::ptrdiff_t socket_stream::try_send(std::span<const iovec> chunks) {
  if (socket_ < 0) return -ENOTCONN;
  if (chunks.empty()) return 0;
  std::size_t wanted = 0;
  for (const iovec& chunk : chunks) wanted += chunk.iov_len;
  const msghdr message = message_of(chunks);
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  const bool full = sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS);
  if (sent < 0 && !full) return -errno;
  const bool all = !full && static_cast<std::size_t>(sent) == wanted;
  if (watching_for_room_ == all) watch_for_room(!all);
  return full ? 0 : sent;
}

std::ptrdiff_t socket_stream::try_receive(std::span<const iovec> into) {
  if (socket_ < 0) return -ENOTCONN;
  msghdr message = message_of(into);
  ssize_t received = 0;
  do {
    received = into.size() == 1 ? recv(socket_, into[0].iov_base, into[0].iov_len, MSG_DONTWAIT)
                                : recvmsg(socket_, &message, MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received > 0) return received;
  if (received == 0) return -EPIPE;
  return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
}

void socket_stream::watch_for_room(bool wanted) {
  epoll_event events{.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, .data = {}};
  // Fails only when the program has closed our descriptor, which the next transfer notices.
  static_cast<void>(epoll_ctl(watch_, EPOLL_CTL_MOD, socket_, &events));
  watching_for_room_ = wanted;
}

void socket_stream::watch_also(int descriptor) {
  epoll_event events{.events = EPOLLIN, .data = {}};
  // Without it, waiters look again after a while.
  static_cast<void>(epoll_ctl(watch_, EPOLL_CTL_ADD, descriptor, &events));
}

void socket_stream::wait(std::uint64_t timeout_ns) {
  constexpr std::uint64_t longest_ns = 1'000'000'000;
  pollfd ready{socket_, static_cast<short>(watching_for_room_ ? POLLIN | POLLOUT : POLLIN), 0};
  platform::wait_for_events({&ready, 1}, static_cast<std::int64_t>(std::min(timeout_ns, longest_ns)));
}

void socket_stream::close() {
  if (socket_ < 0) return;
  // A child of a fork may have a copy of the socket, which would keep it in the epoll.
  static_cast<void>(epoll_ctl(watch_, EPOLL_CTL_DEL, socket_, nullptr));
  close_owned(std::exchange(socket_, -1));
  connecting_ = false;
}

void socket_stream::abandon() {
  // The epoll is shared with the parent: nothing may be changed in it.
  close_owned(std::exchange(socket_, -1));
  close_owned(watch_);
  watch_ = make_watch();
  connecting_ = false;
}

}  // namespace far::backend
