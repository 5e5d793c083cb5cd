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

#include "backend/shm/rendezvous.h"
#include "platform/clock.h"
#include "platform/own_descriptors.h"

namespace far::backend::shm {
namespace {

constexpr std::size_t largest_message_bytes = wire::header_bytes + wire::maximum_handshake_bytes;

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
  const timespec timeout{static_cast<std::time_t>(timeout_ns / 1'000'000'000),
                         static_cast<long>(timeout_ns % 1'000'000'000)};
  return ppoll(&watched, 1, &timeout, nullptr) > 0;
}

}  // namespace

error connection::failure(const std::string& what, int code) const {
  return {"far tier 'shm:" + chosen_.name + "': " + what, code};
}

result<std::unique_ptr<connection>> connection::start(const connection_options& chosen) {
  std::unique_ptr<connection> made(new connection);
  made->chosen_ = chosen;
  if (result<void> found = made->connect(chosen); !found) return found.error();
  if (result<void> trusted = made->check_peer(!chosen.token.empty()); !trusted) return trusted.error();
  wire::hello greeting;
  wire::fill_random(greeting.client);
  greeting.join = chosen.join;
  wire::fill_random(std::as_writable_bytes(std::span(&greeting.channel, 1)));
  greeting.tenant = chosen.tenant;
  made->hello_bytes_ = wire::encode(greeting, made->hello_);
  if (result<void> sent = made->send_message(wire::opcode::hello, std::span(made->hello_).first(made->hello_bytes_));
      !sent) {
    return sent.error();
  }
  return made;
}

result<void> connection::connect(const connection_options& chosen) {
  if (result<void> right = check_name(chosen.name); !right) return failure(right.error().message, EINVAL);
  std::string looked_at;
  for (const std::string& path : socket_paths(chosen.name)) {
    const result<int> connected = connect_to(path);
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
  return failure("no memory server listens at " + looked_at + "; start one with farheapd --shm " + chosen.name,
                 ECONNREFUSED);
}

// Somebody else's server could read all that we store there, and a path under /tmp is anybody's to take.
result<void> connection::check_peer(bool has_token) {
  const result<peer> other = peer_of(socket_);
  if (!other) return failure(other.error().message, other.error().code);
  if (has_token || other.value().uid == geteuid() || other.value().uid == 0) return {};
  return failure("the server at " + path_ + " is run by user " + std::to_string(other.value().uid) +
                     ", neither you nor root; agree on a token with it (shm:NAME?token-file=FILE)",
                 EPERM);
}

connection::~connection() {
  end();
  if (file_ != nullptr) syscall(SYS_munmap, file_, ring_file_bytes);
  close_own(socket_);
  close_own(memory_);
}

void connection::hang_up() {
  end();
  close_own(socket_);
}

void connection::end() {
  alive_.store(false, std::memory_order_relaxed);
  state_ = state::ended;
}

result<void> connection::send_message(wire::opcode op, std::span<const std::byte> payload) {
  std::array<std::byte, largest_message_bytes> message{};
  wire::header front;
  front.op = op;
  front.payload_bytes = static_cast<std::uint32_t>(payload.size());
  front.payload_checksum = wire::checksum(payload);
  wire::encode(front, std::span(message).first<wire::header_bytes>());
  std::copy(payload.begin(), payload.end(), message.begin() + wire::header_bytes);
  const int code = send_packet(socket_, std::span(message).first(wire::header_bytes + payload.size()));
  if (code == 0) return {};
  end();
  return failure("the server at " + path_ + " has hung up: " + std::strerror(code), ECONNRESET);
}

result<connection::state> connection::step() {
  while (state_ == state::greeting || state_ == state::proving) {
    std::array<std::byte, largest_message_bytes> message;
    packet got;
    const int code = receive_packet(socket_, message, got);
    if (code == EAGAIN) return state_;
    if (code != 0) {
      end();
      return failure("the server at " + path_ + " has hung up: " + std::strerror(code), ECONNRESET);
    }
    result<void> answered = answer(std::span(message).first(got.length_bytes), got.descriptors);
    for (const int descriptor : got.descriptors) {
      if (descriptor >= 0) close(descriptor);  // what is needed was duplicated
    }
    if (!answered) {
      end();
      return answered.error();
    }
  }
  return state_;
}

result<void> connection::answer(std::span<const std::byte> message, std::span<const int> descriptors) {
  if (message.size() >= wire::header_bytes) {
    const auto front = wire::decode_header(message.first<wire::header_bytes>());
    const auto payload = message.subspan(wire::header_bytes);
    if (front && front->payload_bytes == payload.size() && front->payload_checksum == wire::checksum(payload)) {
      if (front->op == wire::opcode::refuse) {
        return failure("the server at " + path_ + " refuses: " + wire::decode_refusal(payload), EACCES);
      }
      if (front->op == wire::opcode::challenge && state_ == state::greeting) return on_challenge(payload);
      if (front->op == wire::opcode::welcome && state_ == state::proving) return on_welcome(payload, descriptors);
    }
  }
  return failure("what listens at " + path_ + " is no farheapd, or one of another version", EPROTO);
}

result<void> connection::on_challenge(std::span<const std::byte> payload) {
  const auto asked = wire::decode_challenge(payload);
  if (!asked || asked->version < wire::oldest_version || asked->version > wire::newest_version) {
    return failure("the server at " + path_ + " speaks another version; install the same Farheap on both sides",
                   EPROTO);
  }
  if (asked->token_wanted && chosen_.token.empty()) {
    return failure("the server at " + path_ + " wants a token; write shm:" + chosen_.name + "?token-file=FILE", EACCES);
  }
  if (!asked->token_wanted && !chosen_.token.empty()) {
    return failure("a token was given, but the server at " + path_ +
                       " was started without one and cannot prove who it is; start it with --token-file",
                   EACCES);
  }
  wire::digest proof{};
  if (asked->token_wanted) {
    const auto hello = std::span(hello_).first(hello_bytes_);
    proof = wire::prove(wire::side::client, chosen_.token, hello, payload);
    expected_proof_ = wire::prove(wire::side::server, chosen_.token, hello, payload);
  }
  if (result<void> sent = send_message(wire::opcode::proof, proof); !sent) return sent;
  state_ = state::proving;
  return {};
}

result<void> connection::on_welcome(std::span<const std::byte> payload, std::span<const int> descriptors) {
  const auto welcomed = wire::decode_welcome(payload);
  if (!welcomed || descriptors.size() != maximum_descriptors || descriptors[1] < 0) {
    return failure("the server at " + path_ + " has sent a welcome that makes no sense", EPROTO);
  }
  if (!wire::equal_digests(welcomed->proof, expected_proof_)) {
    return failure("the server at " + path_ + " does not know the token; compare the token files of both sides",
                   EACCES);
  }
  if (result<void> mapped = map_rings(descriptors[1]); !mapped) return mapped;
  memory_ = platform::own_descriptor(fcntl(descriptors[0], F_DUPFD_CLOEXEC, 0));
  if (memory_ < 0) return failure(std::string("no descriptor left: ") + std::strerror(errno), errno);
  welcome_ = *welcomed;
  state_ = state::ready;
  return {};
}

result<void> connection::map_rings(int rings) {
  std::uint64_t size_bytes = 0;
  if (!is_sealed(rings, &size_bytes) || size_bytes != ring_file_bytes) {
    return failure("the server at " + path_ + " has other rings; install the same Farheap on both sides", EPROTO);
  }
  // Straight to the kernel: the program's mmap symbol may be the one that the preload library defines.
  const long address = syscall(SYS_mmap, nullptr, ring_file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, rings, 0L);
  if (address == -1) return failure(std::string("cannot map the rings: ") + std::strerror(errno), errno);
  file_ = reinterpret_cast<ring_file*>(address);
  if (file_->magic != ring_magic || file_->version != ring_version) {
    return failure("the server at " + path_ + " has other rings; install the same Farheap on both sides", EPROTO);
  }
  syscall(SYS_madvise, file_, ring_file_bytes, MADV_DONTDUMP);
  requests_ = ring_producer(file_->request_ring());
  replies_ = ring_consumer(file_->reply_ring());
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
  if (requests_.broken()) end();
  return room;
}

void connection::put(const ring_request& added) {
  requests_.put(std::bit_cast<ring_entry>(added));
}

void connection::flush() {
  if (requests_.publish()) ring_bell(socket_);
}

bool connection::take(ring_reply& into) {
  ring_entry entry;
  if (!replies_.take(entry)) {
    if (replies_.broken()) end();
    return false;
  }
  replies_.release();
  into = std::bit_cast<ring_reply>(entry);
  return true;
}

void connection::wait(std::uint64_t timeout_ns) {
  if (!alive()) return;
  if (replies_.doze() && sleep_for(socket_, timeout_ns)) check();
  replies_.wake();
}

void connection::check() {
  if (alive() && answer_bells(socket_) != 0) end();
}

}  // namespace far::backend::shm
