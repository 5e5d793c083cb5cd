#include "backend/shm/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/log.h"
#include "platform/clock.h"
#include "platform/own_descriptors.h"
#include "platform/wait_for_events.h"
#include "wire/rendezvous.h"

namespace far::backend::shm {
namespace {

std::uint64_t now_ns() {
  return platform::monotonic_clock().now_ns();
}

void close_own(int& descriptor) {
  if (descriptor < 0) return;
  platform::disown_descriptor(descriptor);
  close(descriptor);
  descriptor = -1;
}

// A file that the other side cannot make smaller under our mapping.
bool is_sealed(int file, std::uint64_t* size_bytes) {
  struct stat about{};
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(file, &about) != 0 || about.st_size <= 0) return false;
  *size_bytes = static_cast<std::uint64_t>(about.st_size);
  return true;
}

bool sleep_for(int descriptor, std::uint64_t timeout_ns) {
  pollfd watched{.fd = descriptor, .events = POLLIN, .revents = 0};
  return platform::wait_for_events({&watched, 1}, static_cast<std::int64_t>(timeout_ns)) > 0;
}

}  // namespace

error connection::failure(const std::string& action, int code) const {
  return {"far tier 'shm:" + chosen_.name + "': " + action, code};
}

result<std::unique_ptr<connection>> connection::start(const connection_options& chosen) {
  std::unique_ptr<connection> created(new connection(chosen));
  if (result<void> found = created->connect(); !found) return found.error();
  if (result<void> trusted = created->check_peer(); !trusted) return trusted.error();
  std::uint32_t channel = 0;
  wire::fill_random(std::as_writable_bytes(std::span(&channel, 1)));
  created->handshake_.begin(chosen.join, channel);
  if (result<void> sent = created->send_handshake(); !sent) return sent.error();
  return created;
}

result<void> connection::connect() {
  if (result<void> right = wire::check_server_name(chosen_.name); !right) return failure(right.error().message, EINVAL);
  std::string looked_at;
  for (const std::string& path : wire::socket_paths(chosen_.name)) {
    const result<int> connected = wire::connect_to(path);
    if (connected) {
      socket_ = platform::own_descriptor(connected.value());
      path_ = path;
      return {};
    }
    const int code = connected.error().code;
    if (code != ENOENT && code != ECONNREFUSED && code != ENOTDIR) return failure(connected.error().message, code);
    if (!looked_at.empty()) looked_at += ", ";
    looked_at += path;
  }
  return failure("no memory server listens at " + looked_at + "; start one with farheapd --shm " + chosen_.name,
                 ECONNREFUSED);
}

// A server of another user could read all that we store there, and anybody can create a path under /tmp.
result<void> connection::check_peer() {
  const result<wire::peer> other = wire::peer_of(socket_);
  if (!other) return failure(other.error().message, other.error().code);
  if (!chosen_.shown.token.empty() || other.value().uid == geteuid() || other.value().uid == 0) return {};
  return failure("the server at " + path_ + " is run by user " + std::to_string(other.value().uid) +
                     ", neither you nor root; agree on a token with it (shm:NAME?token-file=FILE)",
                 EPERM);
}

connection::~connection() {
  end();
  if (file_ != nullptr) syscall(SYS_munmap, file_, wire::ring_file_bytes);
  close_own(socket_);
  close_own(memory_);
}

void connection::hang_up() {
  end();
  close_own(socket_);
}

void connection::reject(const char* why) {
  if (alive()) {
    log_line(log_level::error, "far tier 'shm:%s': the server at %s %s; giving the connection up", chosen_.name.c_str(),
             path_.c_str(), why);
  }
  hang_up();
}

void connection::end() {
  alive_.store(false, std::memory_order_relaxed);
  state_ = state::ended;
}

result<void> connection::send_handshake() {
  const std::span<const std::byte> message = handshake_.to_send();
  if (message.empty()) return {};
  const int code = wire::send_packet(socket_, message);
  handshake_.sent(message.size());
  if (code == 0) return {};
  end();
  return failure("the server at " + path_ + " has hung up: " + std::strerror(code), ECONNRESET);
}

result<connection::state> connection::step() {
  while (state_ == state::handshaking) {
    std::array<std::byte, wire::maximum_packet_bytes> message;
    wire::packet got;
    const int code = wire::receive_packet(socket_, message, got);
    if (code == EAGAIN) return state_;
    if (code != 0) {
      end();
      return failure("the server at " + path_ + " has hung up: " + std::strerror(code), ECONNRESET);
    }
    result<void> answered = answer(std::span(message).first(got.length_bytes), got.descriptors);
    for (const int descriptor : got.descriptors) {
      if (descriptor >= 0) close(descriptor);  // those that are needed were duplicated
    }
    if (!answered) {
      end();
      return answered.error();
    }
  }
  return state_;
}

result<void> connection::answer(std::span<const std::byte> message, std::span<const int> descriptors) {
  using step = wire::client_handshake::step;
  const std::optional<wire::packed_message> got = wire::unpack_message(message);
  if (!got) return failure("what listens at " + path_ + " is not farheapd, or another version of it", EPROTO);
  switch (handshake_.take(got->head, got->payload)) {
    case step::more: return send_handshake();
    case step::done: return on_welcome(descriptors);
    case step::refused:
    case step::unknown_session: break;
  }
  return failure("the server at " + path_ + " " + handshake_.explanation(), EACCES);
}

result<void> connection::on_welcome(std::span<const int> descriptors) {
  if (descriptors.size() != wire::maximum_descriptors || descriptors[1] < 0) {
    return failure("the server at " + path_ + " sent a welcome without memory", EPROTO);
  }
  if (result<void> mapped = map_rings(descriptors[1]); !mapped) return mapped;
  memory_ = platform::own_descriptor(fcntl(descriptors[0], F_DUPFD_CLOEXEC, 0));
  if (memory_ < 0) return failure(std::string("no descriptor left: ") + std::strerror(errno), errno);
  state_ = state::ready;
  return {};
}

result<void> connection::map_rings(int rings) {
  std::uint64_t size_bytes = 0;
  if (!is_sealed(rings, &size_bytes) || size_bytes != wire::ring_file_bytes) {
    return failure(
        "the server at " + path_ + " uses another ring format; install the same version of Farheap on both sides",
        EPROTO);
  }
  // Straight to the kernel: the program's mmap symbol may be the one that the preload library defines.
  const long address = syscall(SYS_mmap, nullptr, wire::ring_file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, rings, 0L);
  if (address == -1) return failure(std::string("cannot map the rings: ") + std::strerror(errno), errno);
  file_ = reinterpret_cast<wire::ring_file*>(address);
  if (file_->magic != wire::ring_magic || file_->version != wire::ring_version) {
    return failure(
        "the server at " + path_ + " uses another ring format; install the same version of Farheap on both sides",
        EPROTO);
  }
  syscall(SYS_madvise, file_, wire::ring_file_bytes, MADV_DONTDUMP);
  requests_ = wire::ring_producer(file_->request_ring());
  replies_ = wire::ring_consumer(file_->reply_ring());
  return {};
}

result<void> connection::finish(std::uint64_t timeout_ns) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  while (true) {
    const result<state> now = step();
    if (!now) return now.error();
    if (now.value() == state::ready) return {};
    const std::uint64_t current_ns = now_ns();
    if (current_ns >= deadline_ns) {
      end();
      return failure("the server at " + path_ + " did not answer in time; is it stopped? (timeout=10s waits longer)",
                     ETIMEDOUT);
    }
    sleep_for(socket_, deadline_ns - current_ns);
  }
}

int connection::take_memory() {
  const int memory = memory_;
  memory_ = -1;
  return memory;
}

std::uint32_t connection::room() {
  const std::uint32_t room = alive() ? requests_.room() : 0;
  if (requests_.broken()) reject("writes positions into its rings that cannot be");
  return room;
}

void connection::put(const wire::ring_request& added) {
  requests_.put(std::bit_cast<wire::ring_entry>(added));
}

void connection::flush() {
  if (requests_.publish()) wire::ring_bell(socket_);
}

bool connection::take(wire::ring_reply& into) {
  wire::ring_entry entry;
  if (!replies_.take(entry)) {
    if (replies_.broken()) reject("writes positions into its rings that cannot be");
    return false;
  }
  replies_.release();
  into = std::bit_cast<wire::ring_reply>(entry);
  return true;
}

void connection::wait(std::uint64_t timeout_ns) {
  if (!alive()) return;
  if (replies_.doze() && sleep_for(socket_, timeout_ns)) check();
  replies_.wake();
}

void connection::check() {
  if (alive() && wire::answer_bells(socket_) != 0) end();
}

}  // namespace far::backend::shm
