// What a reply costs a memory server's thread, by the way it is sent: requests for 4 KiB pages, as many at a time as
// the client has outstanding, over TCP on loopback. A stand-in for the server with nothing but receiving and sending,
// so that the ways differ in nothing else. Decision 61 has its figures.
//
//     send_ways [ROUNDS]
#include <arpa/inet.h>
#include <liburing.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t header_bytes = 40;
constexpr std::size_t request_bytes = header_bytes + 16;
constexpr std::size_t memory_pages = std::size_t{1} << 16;
constexpr unsigned trials = 5;

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "send_ways: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// A reply is a header and a page, in two places of memory until a way puts them into one.
class sender {
 public:
  sender(int socket, std::byte* memory, std::size_t depth)
      : socket_(socket), memory_(memory), depth_(depth), headers_(depth * header_bytes) {
    const std::size_t bytes = depth * (header_bytes + page_bytes);
    void* const got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    check(got != MAP_FAILED, "mmap");
    out_ = {static_cast<std::byte*>(got), bytes};
  }
  virtual ~sender() { munmap(out_.data(), out_.size()); }
  sender(const sender&) = delete;
  sender& operator=(const sender&) = delete;
  // Sends a reply for each page.
  virtual void reply(std::span<const std::uint32_t> pages) = 0;

 protected:
  std::span<const std::byte> copy(std::span<const std::uint32_t> pages) {
    std::byte* to = out_.data();
    for (const std::uint32_t page : pages) {
      std::memset(to, 1, header_bytes);
      std::memcpy(to + header_bytes, memory_ + page * page_bytes, page_bytes);
      to += header_bytes + page_bytes;
    }
    return {out_.data(), to};
  }
  msghdr gather(std::span<const std::uint32_t> pages) {
    parts_.clear();
    for (std::size_t i = 0; i < pages.size(); ++i) {
      parts_.push_back({headers_.data() + i * header_bytes, header_bytes});
      parts_.push_back({memory_ + pages[i] * page_bytes, page_bytes});
    }
    msghdr message{};
    message.msg_iov = parts_.data();
    message.msg_iovlen = parts_.size();
    return message;
  }

  int socket_;
  std::byte* memory_;
  std::size_t depth_;
  std::vector<std::byte> headers_;
  std::vector<iovec> parts_;
  std::span<std::byte> out_;
};

class by_send final : public sender {
 public:
  using sender::sender;
  void reply(std::span<const std::uint32_t> pages) override {
    const std::span<const std::byte> bytes = copy(pages);
    check(send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()), "send");
  }
};

class by_sendmsg final : public sender {
 public:
  using sender::sender;
  void reply(std::span<const std::uint32_t> pages) override {
    const msghdr message = gather(pages);
    const auto wanted = static_cast<ssize_t>(pages.size() * (header_bytes + page_bytes));
    check(sendmsg(socket_, &message, MSG_NOSIGNAL) == wanted, "sendmsg");
  }
};

// The kernel says on the error queue when it has done with the pages.
class by_zerocopy final : public sender {
 public:
  by_zerocopy(int socket, std::byte* memory, std::size_t depth) : sender(socket, memory, depth) {
    const int on = 1;
    check(setsockopt(socket, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0, "SO_ZEROCOPY");
  }
  void reply(std::span<const std::uint32_t> pages) override {
    const msghdr message = gather(pages);
    const auto wanted = static_cast<ssize_t>(pages.size() * (header_bytes + page_bytes));
    check(sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_ZEROCOPY) == wanted, "sendmsg with MSG_ZEROCOPY");
    std::array<char, 128> control{};
    msghdr done{};
    done.msg_control = control.data();
    done.msg_controllen = control.size();
    while (recvmsg(socket_, &done, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0) done.msg_controllen = control.size();
  }
};

enum class ring_way : std::uint8_t { plain, zero_copy, registered };

class by_ring final : public sender {
 public:
  by_ring(int socket, std::byte* memory, std::size_t depth, ring_way way) : sender(socket, memory, depth), way_(way) {
    io_uring_params parameters{};
    parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    check(io_uring_queue_init_params(64, &ring_, &parameters) == 0, "io_uring");
    const iovec whole{out_.data(), out_.size()};
    if (way == ring_way::registered) check(io_uring_register_buffers(&ring_, &whole, 1) == 0, "registered buffers");
  }
  ~by_ring() override { io_uring_queue_exit(&ring_); }
  void reply(std::span<const std::uint32_t> pages) override {
    const std::span<const std::byte> bytes = copy(pages);
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    if (way_ == ring_way::plain) {
      io_uring_prep_send(entry, socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_WAITALL);
    } else if (way_ == ring_way::zero_copy) {
      io_uring_prep_send_zc(entry, socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_WAITALL, 0);
    } else {
      io_uring_prep_send_zc_fixed(entry, socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_WAITALL, 0, 0);
    }
    // A send without a copy reports twice: what was sent, and that the buffer is free.
    for (bool more = true; more;) {
      io_uring_cqe* completion = nullptr;
      check(io_uring_submit_and_wait(&ring_, 1) >= 0, "io_uring_submit_and_wait");
      check(io_uring_peek_cqe(&ring_, &completion) == 0, "a completion");
      const bool is_notice = (completion->flags & IORING_CQE_F_NOTIF) != 0;
      errno = is_notice || completion->res >= 0 ? 0 : -completion->res;
      check(is_notice || completion->res == static_cast<int>(bytes.size()), "a send by io_uring");
      more = (completion->flags & IORING_CQE_F_MORE) != 0;
      io_uring_cqe_seen(&ring_, completion);
    }
  }

 private:
  ring_way way_;
  io_uring ring_{};
};

std::unique_ptr<sender> make_sender(const std::string& way, int socket, std::byte* memory, std::size_t depth) {
  if (way == "send") return std::make_unique<by_send>(socket, memory, depth);
  if (way == "sendmsg") return std::make_unique<by_sendmsg>(socket, memory, depth);
  if (way == "MSG_ZEROCOPY") return std::make_unique<by_zerocopy>(socket, memory, depth);
  if (way == "io_uring") return std::make_unique<by_ring>(socket, memory, depth, ring_way::plain);
  if (way == "SEND_ZC") return std::make_unique<by_ring>(socket, memory, depth, ring_way::zero_copy);
  return std::make_unique<by_ring>(socket, memory, depth, ring_way::registered);
}

// Container engines forbid io_uring, and old kernels do not know its flags.
std::vector<std::string> ways_here() {
  std::vector<std::string> ways{"send", "sendmsg", "MSG_ZEROCOPY"};
  io_uring tried{};
  io_uring_params parameters{};
  parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
  if (const int failed = io_uring_queue_init_params(2, &tried, &parameters); failed != 0) {
    std::printf("without io_uring, SEND_ZC and SEND_ZC fixed: %s\n", std::strerror(-failed));
    return ways;
  }
  io_uring_queue_exit(&tried);
  ways.insert(ways.end(), {"io_uring", "SEND_ZC", "SEND_ZC fixed"});
  return ways;
}

// Whether the kernel could encrypt what is sent.
const char* kernel_tls();

void receive_all(int socket, std::size_t bytes) {
  static thread_local std::vector<std::byte> buffer(1 << 20);
  while (bytes > 0) {
    const ssize_t got = recv(socket, buffer.data(), std::min(bytes, buffer.size()), 0);
    check(got > 0, "recv");
    bytes -= static_cast<std::size_t>(got);
  }
}

void tune(int socket) {
  const int on = 1;
  const int buffer_bytes = 4 << 20;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
}

// Two ends of a TCP connection.
std::array<int, 2> connect_pair() {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t bytes = sizeof at;
  check(bind(listener, reinterpret_cast<const sockaddr*>(&at), bytes) == 0 && listen(listener, 1) == 0, "listen");
  getsockname(listener, reinterpret_cast<sockaddr*>(&at), &bytes);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(connect(client, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0, "connect");
  const int server = accept(listener, nullptr, nullptr);
  check(server >= 0, "accept");
  close(listener);
  tune(server);
  tune(client);
  return {server, client};
}

const char* kernel_tls() {
  const auto [server, client] = connect_pair();
  const bool is_there = setsockopt(server, IPPROTO_TCP, TCP_ULP, "tls", 4) == 0;
  const int code = errno;
  close(server);
  close(client);
  return is_there ? "there is the module, and no way of this program uses it" : std::strerror(code);
}

// Microseconds of the serving thread's CPU time for each page, without those of the client.
double serve(const std::string& way, std::byte* memory, std::size_t depth, std::size_t rounds) {
  const auto [server, client] = connect_pair();
  std::thread reader([client = client, depth, rounds] {
    const std::vector<std::byte> requests(depth * request_bytes);
    for (std::size_t round = 0; round < rounds; ++round) {
      check(send(client, requests.data(), requests.size(), MSG_NOSIGNAL) > 0, "the client's send");
      receive_all(client, depth * (header_bytes + page_bytes));
    }
  });
  const std::unique_ptr<sender> chosen = make_sender(way, server, memory, depth);
  std::vector<std::uint32_t> pages(depth);
  std::uint32_t drawn = 1;
  const double before = thread_seconds();
  for (std::size_t round = 0; round < rounds; ++round) {
    receive_all(server, depth * request_bytes);
    for (std::uint32_t& page : pages) {
      drawn = drawn * 1664525u + 1013904223u;
      page = drawn % memory_pages;
    }
    chosen->reply(pages);
  }
  const double spent = thread_seconds() - before;
  reader.join();
  close(server);
  close(client);
  return spent * 1e6 / static_cast<double>(rounds * depth);
}

}  // namespace

int main(int count, char** arguments) {
  const std::size_t rounds = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 20'000;
  check(rounds > 0, "no rounds");
  void* const got = mmap(nullptr, memory_pages * page_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  check(got != MAP_FAILED, "mmap");
  std::printf("microseconds of the server's CPU time for a read of 4 KiB: median of %u, lowest to highest\n", trials);
  const std::vector<std::string> ways = ways_here();
  std::printf("kernel TLS: %s\n", kernel_tls());
  for (const std::size_t depth : {std::size_t{16}, std::size_t{64}}) {
    std::vector<std::array<double, trials>> costs(ways.size());
    // Interleaved, so that a busy moment of the machine meets all ways.
    for (unsigned trial = 0; trial < trials; ++trial) {
      for (std::size_t i = 0; i < ways.size(); ++i) {
        costs[i][trial] = serve(ways[i], static_cast<std::byte*>(got), depth, rounds * 16 / depth + 1);
      }
    }
    for (std::size_t i = 0; i < ways.size(); ++i) {
      std::sort(costs[i].begin(), costs[i].end());
      std::printf("depth %2zu  %-14s %5.2f  %5.2f to %5.2f\n", depth, ways[i].c_str(), costs[i][trials / 2],
                  costs[i][0], costs[i][trials - 1]);
    }
  }
  return 0;
}
