// The transport on epoll, for systems that do not permit io_uring: a transfer is tried at once, and again when the
// kernel reports that it may succeed.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "server/transport.h"

namespace far::server {
namespace {

constexpr std::uint32_t waker_number = ~std::uint32_t{0};

class epoll_transport final : public transport {
 public:
  explicit epoll_transport(std::uint32_t most_connections) : all_(most_connections) {
    to_try_.reserve(2 * std::size_t{most_connections});
  }

  ~epoll_transport() override {
    if (set_ >= 0) close(set_);
    if (waker_ >= 0) close(waker_);
  }

  [[nodiscard]] result<void> open() {
    set_ = epoll_create1(EPOLL_CLOEXEC);
    waker_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event interest{.events = EPOLLIN, .data = {.u32 = waker_number}};
    if (set_ < 0 || waker_ < 0 || epoll_ctl(set_, EPOLL_CTL_ADD, waker_, &interest) != 0) {
      return error{std::string("epoll: ") + std::strerror(errno) + "; raise the limit on descriptors (ulimit -n)",
                   errno};
    }
    return {};
  }

  void add(std::uint32_t connection, int socket) override {
    all_.at(connection) = {.socket = socket};
    epoll_event interest{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.u32 = connection}};
    // A socket that cannot be watched fails its first transfer.
    if (epoll_ctl(set_, EPOLL_CTL_ADD, socket, &interest) != 0) all_[connection].broken = errno;
  }

  void remove(std::uint32_t connection) override {
    static_cast<void>(epoll_ctl(set_, EPOLL_CTL_DEL, all_.at(connection).socket, nullptr));
    all_[connection] = {};
  }

  void receive(std::uint32_t connection, std::span<std::byte> to) override {
    all_[connection].to = to;
    to_try_.push_back({connection, motion::received});
  }

  void send(std::uint32_t connection, std::span<const std::byte> from) override {
    all_[connection].from = from;
    to_try_.push_back({connection, motion::sent});
  }

  std::size_t wait(std::span<event> into, std::uint64_t timeout_ns) override {
    std::size_t count = try_all(into);
    std::array<epoll_event, 64> ready;
    // A wake-up may be left from a call that had no room for it.
    const int got = wait_for(ready, count > 0 || woken_ ? 0 : timeout_ns);
    for (int i = 0; i < got; ++i) note_ready(ready[static_cast<std::size_t>(i)]);
    count += try_all(into.subspan(count));
    if (woken_ && count < into.size()) {
      woken_ = false;
      into[count++] = {};
    }
    return count;
  }

  void wake() override {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(waker_, &one, sizeof one);
  }

  [[nodiscard]] const char* name() const override { return "epoll"; }

 private:
  struct state {
    int socket = -1;
    int broken = 0;
    std::span<std::byte> to{};          // of a receive that waits
    std::span<const std::byte> from{};  // of a send that waits
  };
  struct attempt {
    std::uint32_t connection;
    motion kind;
  };

  // epoll_wait() waits whole milliseconds, and a device's reply, for one, is looked for after microseconds.
  // epoll_pwait2() takes nanoseconds (Linux 5.11); where it is missing, the set itself is waited for.
  int wait_for(std::span<epoll_event> ready, std::uint64_t timeout_ns) {
    const int room = static_cast<int>(ready.size());
    const timespec timeout{.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000u),
                           .tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000u)};
    if (has_pwait2_ && timeout_ns > 0) {
      const int got = epoll_pwait2(set_, ready.data(), room, &timeout, nullptr);
      // Filters of system calls answer EPERM.
      if (got >= 0 || (errno != ENOSYS && errno != EPERM)) return got;
      has_pwait2_ = false;
    }
    if (timeout_ns > 0) {
      pollfd all{set_, POLLIN, 0};
      static_cast<void>(ppoll(&all, 1, &timeout, nullptr));
    }
    return epoll_wait(set_, ready.data(), room, 0);
  }

  void note_ready(const epoll_event& ready) {
    const std::uint32_t connection = ready.data.u32;
    if (connection == waker_number) {
      std::uint64_t wakes = 0;
      [[maybe_unused]] const ssize_t got = read(waker_, &wakes, sizeof wakes);
      woken_ = true;
      return;
    }
    // Edge-triggered: both sides are tried; a transfer that is not ready stays as it is.
    const state& side = all_[connection];
    if (!side.to.empty()) to_try_.push_back({connection, motion::received});
    if (!side.from.empty()) to_try_.push_back({connection, motion::sent});
  }

  std::size_t try_all(std::span<event> into) {
    std::size_t count = 0;
    std::size_t tried = 0;
    while (tried < to_try_.size() && count < into.size()) {
      const attempt wanted = to_try_[tried++];
      int outcome = 0;
      if (try_one(wanted, &outcome)) into[count++] = {wanted.kind, wanted.connection, outcome};
    }
    to_try_.erase(to_try_.begin(), to_try_.begin() + static_cast<std::ptrdiff_t>(tried));
    return count;
  }

  // Whether the transfer has ended.
  bool try_one(const attempt& wanted, int* outcome) {
    state& side = all_[wanted.connection];
    const bool receives = wanted.kind == motion::received;
    // It has ended since then: the kernel reported it twice.
    if (receives ? side.to.empty() : side.from.empty()) return false;
    ssize_t moved = -1;
    do {
      moved = receives ? recv(side.socket, side.to.data(), side.to.size(), MSG_DONTWAIT)
                       : ::send(side.socket, side.from.data(), side.from.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (moved < 0 && errno == EINTR);
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && side.broken == 0) return false;
    *outcome = moved >= 0 ? static_cast<int>(moved) : -(side.broken != 0 ? side.broken : errno);
    if (receives) {
      side.to = {};
    } else {
      side.from = {};
    }
    return true;
  }

  int set_ = -1;
  int waker_ = -1;
  bool has_pwait2_ = true;
  bool woken_ = false;
  std::vector<state> all_;
  std::vector<attempt> to_try_;
};

}  // namespace

result<std::unique_ptr<transport>> make_epoll_transport(std::uint32_t most_connections) {
  auto created = std::make_unique<epoll_transport>(most_connections);
  if (result<void> opened = created->open(); !opened) return opened.error();
  return std::unique_ptr<transport>(std::move(created));
}

}  // namespace far::server
