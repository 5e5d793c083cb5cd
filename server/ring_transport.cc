// The transport on io_uring: one system call a turn of the loop, for all its connections.
#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/transport.h"

namespace far::server {
namespace {

constexpr unsigned ring_entries = 256;

class ring_transport final : public transport {
 public:
  explicit ring_transport(std::uint32_t most_connections) : sockets_(most_connections, -1) {}

  ~ring_transport() override {
    if (ring_open_) io_uring_queue_exit(&ring_);
    if (waker_ >= 0) close(waker_);
  }

  // Tries sets of flags from the fastest to the oldest, because the kernel rejects a whole set if it does not know one
  // of its flags.
  [[nodiscard]] result<void> open() {
    // The first set is the fastest (Linux 6.1). Older kernels get fewer flags.
    int failed = 0;
    for (const unsigned flags :
         {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0u}) {
      io_uring_params parameters{};
      parameters.flags = flags;
      failed = io_uring_queue_init_params(ring_entries, &ring_, &parameters);
      if (failed == 0) {
        ring_open_ = true;
        if ((parameters.features & IORING_FEAT_EXT_ARG) != 0) break;
        return error{"this kernel's io_uring cannot wait with a timeout (Linux 5.11 can)", ENOSYS};
      }
      if (failed != -EINVAL) break;
    }
    if (failed != 0) return error{std::string("io_uring: ") + std::strerror(-failed), -failed};
    waker_ = eventfd(0, EFD_CLOEXEC);
    if (waker_ < 0) return error{std::string("eventfd: ") + std::strerror(errno), errno};
    listen_for_wake();
    return {};
  }

  void add(std::uint32_t connection, int socket) override { sockets_.at(connection) = socket; }
  void remove(std::uint32_t connection) override { sockets_.at(connection) = -1; }

  void receive(std::uint32_t connection, std::span<std::byte> to) override {
    io_uring_sqe* const entry = next_entry();
    io_uring_prep_recv(entry, sockets_[connection], to.data(), to.size(), 0);
    entry->user_data = tag(motion::received, connection);
  }

  void send(std::uint32_t connection, std::span<const std::byte> from) override {
    io_uring_sqe* const entry = next_entry();
    io_uring_prep_send(entry, sockets_[connection], from.data(), from.size(), MSG_NOSIGNAL);
    entry->user_data = tag(motion::sent, connection);
  }

  // One call submits and waits, so that a busy loop makes one system call a turn. Without a timeout the call still has
  // to enter the kernel, which runs deferred completions only then.
  std::size_t wait(std::span<event> into, std::uint64_t timeout_ns) override {
    io_uring_cqe* first = nullptr;
    __kernel_timespec timeout{.tv_sec = static_cast<long long>(timeout_ns / 1'000'000'000u),
                              .tv_nsec = static_cast<long long>(timeout_ns % 1'000'000'000u)};
    if (timeout_ns == 0) {
      static_cast<void>(io_uring_submit_and_get_events(&ring_));
    } else {
      // Its errors (a timeout, a signal) leave entries in the queue, which the next call submits.
      static_cast<void>(io_uring_submit_and_wait_timeout(&ring_, &first, 1, &timeout, nullptr));
    }
    std::size_t count = 0;
    bool woken = false;
    unsigned seen = 0;
    unsigned head = 0;
    io_uring_cqe* completion = nullptr;
    io_uring_for_each_cqe(&ring_, head, completion) {
      if (count == into.size()) break;
      ++seen;
      into[count++] = {static_cast<motion>(completion->user_data >> 32),
                       static_cast<std::uint32_t>(completion->user_data), completion->res};
      if (into[count - 1].kind == motion::woken) woken = true;
    }
    io_uring_cq_advance(&ring_, seen);
    if (woken) listen_for_wake();
    return count;
  }

  void wake() override {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(waker_, &one, sizeof one);
  }

  [[nodiscard]] const char* name() const override { return "io_uring"; }

 private:
  static std::uint64_t tag(motion kind, std::uint32_t connection) {
    return static_cast<std::uint64_t>(kind) << 32 | connection;
  }

  io_uring_sqe* next_entry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    for (int tries = 0; entry == nullptr && tries < 1000; ++tries) {
      static_cast<void>(io_uring_submit(&ring_));
      entry = io_uring_get_sqe(&ring_);
    }
    FAR_CHECK(entry != nullptr, "io_uring takes no more entries");
    return entry;
  }

  void listen_for_wake() {
    io_uring_sqe* const entry = next_entry();
    io_uring_prep_read(entry, waker_, &wakes_, sizeof wakes_, 0);
    entry->user_data = tag(motion::woken, 0);
  }

  io_uring ring_{};
  bool ring_open_ = false;
  int waker_ = -1;
  std::uint64_t wakes_ = 0;
  std::vector<int> sockets_;
};

}  // namespace

result<std::unique_ptr<transport>> make_ring_transport(std::uint32_t most_connections) {
  auto created = std::make_unique<ring_transport>(most_connections);
  if (result<void> opened = created->open(); !opened) return opened.error();
  return std::unique_ptr<transport>(std::move(created));
}

}  // namespace far::server
