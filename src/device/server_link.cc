#include "device/server_link.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "backend/tcp/secure_stream.h"
#include "backend/tcp/socket_stream.h"
#include "platform/clock.h"
#include "platform/wait_for_events.h"
#include "wire/bytes.h"

namespace far::device_parts {
namespace {

constexpr std::uint64_t ms = device_times::ms;

// Devices that live for a few calls do without a second connection. Where there cannot be one, asking is rare.
constexpr unsigned calls_before_first_direct = 8;
constexpr unsigned calls_before_next_direct = 1000;
constexpr std::uint64_t direct_patience_ns = 1'000 * ms;
// Of a question that may be given up, until that is looked at again.
constexpr std::uint64_t longest_wait_ns = 100 * ms;

// A reply of a few bytes comes with its header.
constexpr std::size_t most_ahead = 4096;

std::vector<std::byte> encoded_call(const wire::device_request& asked) {
  std::vector<std::byte> payload(wire::call_header_bytes + wire::device_request_bytes + asked.bytes.size());
  static_cast<void>(wire::encode_call(wire::device_call_name, std::span(payload).first<wire::call_header_bytes>()));
  wire::encode(asked, std::span(payload).subspan<wire::call_header_bytes, wire::device_request_bytes>());
  std::ranges::copy(asked.bytes, payload.begin() + wire::call_header_bytes + wire::device_request_bytes);
  return payload;
}

}  // namespace

result<std::unique_ptr<device_link>> server_link::create(const backend::tcp_endpoint& server,
                                                         const backend::tcp_trust& trust) {
  result<std::vector<backend::socket_address>> addresses = backend::resolve(server);
  if (!addresses) return addresses.error();
  const auto known = std::make_shared<backend::server_addresses>(addresses.value());
  result<std::unique_ptr<backend::byte_stream>> stream = backend::socket_stream::create(known);
  if (!stream) return stream.error();
  std::unique_ptr<backend::byte_stream> used = std::move(stream).value();
  if (trust.tls) used = std::make_unique<backend::secure_stream>(std::move(used), *trust.tls, server.host);
  std::unique_ptr<server_link> link(new server_link("tcp://" + server.text(), std::move(used), trust, {}));
  if (!trust.tls) link->open_more_ = [known] { return backend::socket_stream::create(known); };
  return std::unique_ptr<device_link>(std::move(link));
}

std::unique_ptr<device_link> server_link::assemble(std::string peer, std::unique_ptr<backend::byte_stream> stream,
                                                   const backend::tcp_trust& trust, const device_times& times) {
  return std::unique_ptr<device_link>(new server_link(std::move(peer), std::move(stream), trust, times));
}

server_link::server_link(std::string peer, std::unique_ptr<backend::byte_stream> stream, backend::tcp_trust trust,
                         const device_times& times)
    : peer_(std::move(peer)),
      stream_(std::move(stream)),
      trust_(std::move(trust)),
      times_(times),
      calls_before_direct_(calls_before_first_direct),
      handshake_(trust_.shown) {
  std::array<std::byte, sizeof channel_> drawn;
  trust_.shown.random(drawn);
  std::memcpy(&channel_, drawn.data(), sizeof channel_);
  channel_ %= wire::first_child_channel;
}

server_link::~server_link() {
  wire::header said;
  direct_.reset();
  if (is_connected_ && !is_direct_)
    static_cast<void>(exchange(wire::opcode::close, {}, now() + times_.ping_patience_ns, &said));
  disconnect();
}

link_answer server_link::ask(const wire::device_request& asked, const patience& how) {
  using kind = link_answer::kind;
  given_up_ = how.given_up;
  const std::uint64_t began_ns = now();
  const std::vector<std::byte> payload = encoded_call(asked);
  std::uint64_t answer_ns = how.answer_ns;
  if (wire::is_operation(asked.op)) {
    if (std::optional<link_answer> got = ask_directly(asked, payload, how)) return *std::move(got);
    // What the process has not answered in all that time, the server knows, or nobody does.
    if (now() - began_ns >= how.answer_ns) answer_ns = std::min(how.reach_ns, how.answer_ns);
  }
  std::uint64_t pause_ns = times_.first_pause_ns;
  std::uint64_t reached_at_ns = began_ns;
  for (;;) {
    wire::header said;
    outcome got = connect(now() + how.reach_ns);
    if (got == outcome::done) {
      got = exchange(wire::opcode::call, payload, now() + answer_ns, &said);
      reached_at_ns = now();
    }
    if (got == outcome::forgotten) return link_answer::failed(kind::forgotten, why_);
    // A server that has taken us before may have too many connections for a moment, of which some are our own old ones.
    if (got == outcome::refused && session_ == wire::session_id{}) return link_answer::failed(kind::impossible, why_);
    if (got == outcome::done && said.result == wire::status::ok) return {kind::answered, payload_, ""};
    if (got == outcome::done && said.result == wire::status::unknown_call) {
      return link_answer::failed(kind::impossible, peer_ + " has no devices; start its farheapd with --plugin FILE");
    }
    if (got == outcome::done && said.result != wire::status::bad_checksum) {
      return link_answer::failed(kind::impossible, peer_ + " does not understand the call");
    }
    const bool is_over = now() - began_ns + pause_ns >= how.reach_ns + how.answer_ns;
    const bool is_away = now() - reached_at_ns + pause_ns >= how.reach_ns;
    if (!how.again || is_over || is_away || how.is_given_up()) return link_answer::failed(kind::unreachable, why_);
    sleep(pause_ns);
    pause_ns = std::min(2 * pause_ns, times_.longest_pause_ns);
  }
}

std::optional<link_answer> server_link::ask_directly(const wire::device_request& asked,
                                                     std::span<const std::byte> payload, const patience& how) {
  if (!direct_ && open_more_ && is_connected_ && ++calls_ > calls_before_direct_) {
    calls_ = 0;
    direct_ = open_direct(asked, how);
    calls_before_direct_ = direct_ ? calls_before_first_direct : calls_before_next_direct;
  }
  if (!direct_) return std::nullopt;
  direct_->given_up_ = how.given_up;
  wire::header said;
  if (direct_->exchange(wire::opcode::call, payload, now() + how.answer_ns, &said) == outcome::done &&
      said.result == wire::status::ok) {
    return link_answer{link_answer::kind::answered, direct_->payload_, ""};
  }
  // The call's number tells the device whether it has done it already.
  direct_.reset();
  return std::nullopt;
}

std::unique_ptr<server_link> server_link::open_direct(const wire::device_request& asked, const patience& how) const {
  result<std::unique_ptr<backend::byte_stream>> stream = open_more_();
  if (!stream) return nullptr;
  std::unique_ptr<server_link> opened(new server_link(peer_, std::move(stream).value(), trust_, times_));
  opened->session_ = session_;
  opened->session_version_ = session_version_;
  opened->session_address_ = session_address_;
  opened->is_direct_ = true;
  opened->channel_ = channel_ ^ 1;  // a newer connection of the same channel would end this one
  const std::uint64_t until_ns = now() + std::min(how.reach_ns, direct_patience_ns);
  if (opened->connect(until_ns) != outcome::done) return nullptr;
  const std::vector<std::byte> wanted =
      encoded_call({.op = wire::device_op::direct, .device = asked.device, .call = asked.call});
  wire::header said;
  if (opened->exchange(wire::opcode::call, wanted, until_ns, &said) != outcome::done) return nullptr;
  const std::optional<wire::device_reply> reply = wire::decode_device_reply(opened->payload_);
  if (said.result != wire::status::ok || !reply || reply->outcome != wire::device_outcome::ok) return nullptr;
  return opened;
}

// A connection that has broken is opened anew, too: otherwise the server would forget a client that only waits.
server_link::health server_link::keep_alive() {
  if (now() - heard_at_ns_ < times_.ping_after_ns) return health::alive;
  const std::uint64_t until_ns = now() + times_.ping_patience_ns;
  wire::header said;
  outcome got = connect(until_ns);
  if (got == outcome::done) got = exchange(wire::opcode::ping, {}, until_ns, &said);
  if (got == outcome::forgotten) return health::forgotten;
  return got == outcome::done ? health::alive : health::silent;
}

// The end of the session ends its devices. So does that of its lease. That begins when the server finds that we are
// gone, for which another lease is enough time.
bool server_link::leave(const patience& how) {
  const bool is_over = (now() - heard_at_ns_) / ms > 2 * std::uint64_t{handshake_.welcome().lease_ms};
  if (session_ == wire::session_id{} || (is_over && !is_connected_)) return true;
  given_up_ = how.given_up;
  wire::header said;
  outcome got = connect(now() + how.reach_ns);
  if (got == outcome::done) got = exchange(wire::opcode::close, {}, now() + how.answer_ns, &said);
  if (got != outcome::done && got != outcome::forgotten) return false;
  disconnect();
  session_ = {};
  return true;
}

server_link::outcome server_link::broken(const std::string& why) {
  why_ = peer_ + ": " + why;
  disconnect();
  return outcome::broken;
}

void server_link::disconnect() {
  is_connected_ = false;
  ahead_.clear();
  ahead_taken_ = 0;
  stream_->close();
}

server_link::outcome server_link::connect(std::uint64_t until_ns) {
  if (is_connected_) return outcome::done;
  stream_->close();
  // Another address may be another server, which does not know the session.
  if (session_ != wire::session_id{}) stream_->use_address(session_address_);
  int code = stream_->connect();
  if (code == 0) code = stream_->finish_connecting();
  while (code == EINPROGRESS && !is_up(until_ns)) {
    pause(now() + ms);
    code = stream_->finish_connecting();
  }
  if (code != 0) return broken(*stream_->explanation() != '\0' ? stream_->explanation() : std::strerror(code));
  return shake_hands(until_ns);
}

server_link::outcome server_link::shake_hands(std::uint64_t until_ns) {
  using step = wire::client_handshake::step;
  const bool joins = session_ != wire::session_id{};
  const std::uint16_t oldest =
      joins ? std::min(session_version_, wire::client_handshake::first_version_that_proves) : wire::oldest_version;
  handshake_.begin(session_, channel_, oldest);
  for (;;) {
    const std::span<const std::byte> out = handshake_.to_send();
    const std::size_t bytes = out.size();
    if (!send_all(out, until_ns)) return outcome::broken;
    handshake_.sent(bytes);
    const std::optional<wire::header> head = receive(until_ns);
    if (!head) return outcome::broken;
    handshake_.bind(stream_->binding());
    switch (handshake_.take(*head, payload_)) {
      case step::more: break;
      case step::done:
        session_ = handshake_.welcome().session;
        session_version_ = handshake_.version();
        session_address_ = stream_->address();
        is_connected_ = true;
        return outcome::done;
      case step::refused:
        disconnect();
        why_ = peer_ + " " + handshake_.explanation();
        return outcome::refused;
      case step::unknown_session:
        disconnect();
        why_ = peer_ + " has lost its devices: it was restarted, or not reached for longer than its lease";
        return outcome::forgotten;
    }
  }
}

server_link::outcome server_link::exchange(wire::opcode op, std::span<const std::byte> payload, std::uint64_t until_ns,
                                           wire::header* answered) {
  const wire::header head{.op = op,
                          .payload_bytes = static_cast<std::uint32_t>(payload.size()),
                          .cookie = ++cookie_,
                          .payload_checksum = wire::checksum(payload)};
  message_.resize(wire::header_bytes);
  wire::encode(head, std::span(message_).first<wire::header_bytes>());
  message_.insert(message_.end(), payload.begin(), payload.end());
  if (!send_all(message_, until_ns)) return outcome::broken;
  // Looking before that would find nothing, and cost a system call.
  if (is_socket()) pause(until_ns);
  for (;;) {
    const std::optional<wire::header> got = receive(until_ns);
    if (!got) return outcome::broken;
    if (!got->is_reply) {  // a notice, such as that the server is draining
      if (is_up(until_ns)) return broken("it does not answer in time");
      continue;
    }
    if (got->op != op || got->cookie != cookie_) return broken("it broke the protocol");
    *answered = *got;
    return outcome::done;
  }
}

void server_link::sleep(std::uint64_t ns) const {
  const std::uint64_t until_ns = now() + ns;
  if (stream_->descriptor() >= 0) return std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
  while (now() < until_ns) stream_->wait(until_ns - now());
}

bool server_link::is_up(std::uint64_t until_ns) const {
  return now() >= until_ns || (given_up_ != nullptr && given_up_->load());
}

void server_link::pause(std::uint64_t until_ns) const {
  const std::uint64_t at_ns = now();
  if (given_up_ != nullptr) until_ns = std::min(until_ns, at_ns + longest_wait_ns);
  if (is_socket() || stream_->descriptor() < 0) return stream_->wait(until_ns > at_ns ? until_ns - at_ns : 0);
  constexpr std::uint64_t longest_ns = 1'000'000'000;
  const std::uint64_t left_ns = until_ns > at_ns ? std::min(until_ns - at_ns, longest_ns) : 0;
  pollfd ready{stream_->descriptor(), POLLIN, 0};
  platform::wait_for_events({&ready, 1}, static_cast<std::int64_t>(left_ns));
}

bool server_link::send_all(std::span<const std::byte> bytes, std::uint64_t until_ns) {
  while (!bytes.empty() || stream_->has_unsent()) {
    const iovec chunk{const_cast<std::byte*>(bytes.data()), bytes.size()};
    const std::ptrdiff_t sent = stream_->try_send({&chunk, bytes.empty() ? 0u : 1u});
    if (sent < 0) {
      static_cast<void>(
          broken(*stream_->explanation() != '\0' ? stream_->explanation() : std::strerror(static_cast<int>(-sent))));
      return false;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
    if (bytes.empty() && !stream_->has_unsent()) return true;
    // Also of a server that takes a byte now and then.
    if (is_up(until_ns)) return static_cast<void>(broken("it does not answer in time")), false;
    if (sent > 0) continue;
    if (!receive_ahead()) return false;
    pause(std::min(until_ns, now() + ms));
  }
  return true;
}

// An encrypted stream sends nothing before it has received the server's part of the handshake. What the server says
// meanwhile is kept.
bool server_link::receive_ahead() {
  ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<std::ptrdiff_t>(ahead_taken_));
  ahead_taken_ = 0;
  const std::size_t kept = ahead_.size();
  if (kept >= most_ahead) return true;
  ahead_.resize(most_ahead);
  const iovec room{ahead_.data() + kept, most_ahead - kept};
  const std::ptrdiff_t got = stream_->try_receive({&room, 1});
  ahead_.resize(kept + static_cast<std::size_t>(std::max<std::ptrdiff_t>(got, 0)));
  if (got >= 0) return true;
  static_cast<void>(
      broken(*stream_->explanation() != '\0' ? stream_->explanation() : std::strerror(static_cast<int>(-got))));
  return false;
}

bool server_link::receive_all(std::span<std::byte> into, std::uint64_t until_ns) {
  const std::size_t here = std::min(into.size(), ahead_.size() - ahead_taken_);
  std::copy_n(ahead_.begin() + static_cast<std::ptrdiff_t>(ahead_taken_), here, into.begin());
  ahead_taken_ += here;
  into = into.subspan(here);
  while (!into.empty()) {
    // There is nothing ahead now.
    ahead_.resize(most_ahead);
    const std::array<iovec, 2> chunks{{{into.data(), into.size()}, {ahead_.data(), ahead_.size()}}};
    const std::ptrdiff_t got = stream_->try_receive(chunks);
    const std::size_t bytes = got > 0 ? static_cast<std::size_t>(got) : 0;
    ahead_.resize(bytes - std::min(bytes, into.size()));
    ahead_taken_ = 0;
    if (got < 0) {
      static_cast<void>(
          broken(*stream_->explanation() != '\0' ? stream_->explanation() : std::strerror(static_cast<int>(-got))));
      return false;
    }
    into = into.subspan(std::min(bytes, into.size()));
    if (into.empty()) return true;
    if (is_up(until_ns)) return static_cast<void>(broken("it does not answer in time")), false;
    if (got == 0) pause(until_ns);
  }
  return true;
}

std::optional<wire::header> server_link::receive(std::uint64_t until_ns) {
  std::array<std::byte, wire::header_bytes> bytes;
  if (!receive_all(bytes, until_ns)) return std::nullopt;
  const std::optional<wire::header> head = wire::decode_header(bytes);
  if (!head || head->is_packed) {
    static_cast<void>(broken("it does not speak the protocol of farheapd; with tls=1, or without?"));
    return std::nullopt;
  }
  payload_.resize(head->payload_bytes);
  if (!receive_all(payload_, until_ns)) return std::nullopt;
  const bool is_ours = head->op >= wire::opcode::read;
  if (is_ours && wire::checksum(payload_) != head->payload_checksum) {
    static_cast<void>(broken("a reply arrived damaged"));
    return std::nullopt;
  }
  heard_at_ns_ = now();
  return head;
}

}  // namespace far::device_parts
