#include "server/protocol.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"

namespace far::server {
namespace {

using wire::header;
using wire::header_bytes;
using wire::maximum_payload_bytes;
using wire::opcode;
using wire::status;

// As much as one receive may bring, unless a longer message has begun: more would only fall out of the processor's
// cache before it is handled, and would be kept by idle connections.
constexpr std::size_t receive_bytes = 64 * kib;
constexpr std::size_t stranger_bytes = page_bytes;
constexpr std::size_t longest_message_bytes = header_bytes + maximum_payload_bytes;
constexpr std::size_t in_bytes = longest_message_bytes + receive_bytes;
// Requests are handled while there is room for the longest reply.
constexpr std::size_t out_bytes = 3 * longest_message_bytes;

// The work that one connection may do before the others of its loop have their turn.
constexpr std::size_t turn_bytes = 2 * mib;
constexpr std::size_t message_cost_bytes = 64;

// How often a new connection looks whether the older one of its channel is harmless.
constexpr std::uint64_t retry_ns = 200'000;

// A client that reads fewer bytes of its replies than this in the time it has is a slow reader.
constexpr std::uint64_t least_read_bytes = 64 * kib;

constexpr std::uint32_t maximum_outstanding = 256;

std::uint64_t after(std::uint64_t start_ns, std::uint64_t duration_ns) {
  return start_ns > protocol::never - duration_ns ? protocol::never : start_ns + duration_ns;
}

}  // namespace

protocol::protocol(const protocol_settings& settings, loop_counters& counters, std::uint64_t now_ns)
    : settings_(settings),
      counters_(counters),
      in_(in_bytes),
      out_(out_bytes),
      handshake_(settings.random),
      started_at_ns_(now_ns),
      heard_at_ns_(now_ns) {
  counters_.connections.add();
}

protocol::~protocol() {
  FAR_CHECK(left_, "a connection was destroyed before it left its session");
}

void protocol::leave(std::uint64_t now_ns) {
  if (left_) return;
  end(close_reason::peer_gone);
  if (allocating_) mine_.to->abandon(allocation_);
  allocating_ = false;
  settings_.lent->leave(mine_, now_ns);
  counters_.endings[static_cast<std::size_t>(reason_)].add();
  left_ = true;
}

void protocol::end(close_reason reason) {
  if (reason_ == close_reason::none) reason_ = reason;
}

std::span<std::byte> protocol::receive_space() {
  if (is_over()) return {};
  // Strangers get a page, so that many of them cost little.
  const std::size_t held = in_.filled().size();
  const bool stranger = phase_ != phase::serving;
  const std::size_t wanted =
      stranger ? stranger_bytes - std::min(stranger_bytes, held)
               : std::max(receive_bytes, longest_message_bytes - std::min(held, longest_message_bytes));
  in_.make_room(wanted);
  offered_ = std::min(in_.room(), !stranger && message_began_ns_ != never ? wanted : std::min(wanted, receive_bytes));
  return in_.space().first(offered_);
}

void protocol::received(std::size_t bytes, std::uint64_t now_ns) {
  in_.add(bytes);
  offered_ = 0;
  heard_at_ns_ = now_ns;
}

void protocol::sent(std::size_t bytes, std::uint64_t now_ns) {
  out_.remove(bytes);
  out_.make_some_room();
  read_bytes_ += bytes;
  if (out_.empty() || read_bytes_ >= least_read_bytes) {
    reading_since_ns_ = out_.empty() ? never : now_ns;
    read_bytes_ = 0;
  }
}

void protocol::note_reading(std::uint64_t now_ns) {
  if (out_.empty() || reading_since_ns_ != never) return;
  reading_since_ns_ = now_ns;
  read_bytes_ = 0;
}

void protocol::work(std::uint64_t now_ns) {
  if (is_over()) return;
  if (mine_.to && mine_.is_fenced()) return end(close_reason::fenced);
  check_deadlines(now_ns);
  retry_at_ns_ = never;
  is_tired_ = false;
  work_left_ = turn_bytes;
  if (phase_ == phase::awaiting_fence) try_welcome(now_ns);
  if (drain_wanted_ && !drain_told_ && phase_ == phase::serving && has_reply_room()) {
    append({.op = opcode::draining}, 0);
    drain_told_ = true;
  }
  while (!is_over() && handle_next(now_ns)) {
  }
  note_reading(now_ns);
}

void protocol::check_deadlines(std::uint64_t now_ns) {
  const auto late = [&](std::uint64_t since_ns, std::uint64_t allowed_ns) {
    return now_ns >= after(since_ns, allowed_ns);
  };
  if (phase_ != phase::serving && late(started_at_ns_, settings_.patience_ns)) return end(close_reason::late_handshake);
  if (late(message_began_ns_, settings_.patience_ns)) return end(close_reason::slow_sender);
  if (late(reading_since_ns_, settings_.patience_ns)) return end(close_reason::slow_reader);
  if (late(heard_at_ns_, settings_.silence_ns)) return end(close_reason::silent);
}

std::uint64_t protocol::next_work_ns() const {
  if (is_over()) return never;
  if (is_tired_) return 0;
  std::uint64_t next = std::min(retry_at_ns_, after(heard_at_ns_, settings_.silence_ns));
  if (phase_ != phase::serving) next = std::min(next, after(started_at_ns_, settings_.patience_ns));
  next = std::min(next, after(message_began_ns_, settings_.patience_ns));
  return std::min(next, after(reading_since_ns_, settings_.patience_ns));
}

bool protocol::has_reply_room() const {
  return out_.room() >= longest_message_bytes;
}

// Whether the next message was there, complete, and handled.
bool protocol::handle_next(std::uint64_t now_ns) {
  const std::span<const std::byte> bytes = in_.filled();
  if (bytes.empty()) {
    message_began_ns_ = never;
    return false;
  }
  if (!has_reply_room()) {
    // The client is the one to blame, as a slow reader; what it has sent waits.
    message_began_ns_ = never;
    return false;
  }
  if (phase_ == phase::awaiting_fence) return false;
  if (work_left_ == 0) {
    is_tired_ = true;
    return false;
  }
  const auto incomplete = [&] {
    if (message_began_ns_ == never) message_began_ns_ = now_ns;
    return false;
  };
  if (bytes.size() < header_bytes) return incomplete();
  const std::optional<header> head = wire::decode_header(bytes.first<header_bytes>());
  // Before its handshake a client may not even make us keep what it sends.
  const std::size_t longest = phase_ == phase::serving ? maximum_payload_bytes : wire::maximum_handshake_bytes;
  if (!head || head->payload_bytes > longest) {
    end(close_reason::malformed);
    return false;
  }
  const std::size_t whole_bytes = header_bytes + head->payload_bytes;
  if (bytes.size() < whole_bytes) return incomplete();
  if (handle(*head, bytes.subspan(header_bytes, head->payload_bytes), now_ns) == outcome::later) return false;
  message_began_ns_ = never;
  in_.remove(whole_bytes);
  work_left_ -= std::min(work_left_, message_cost_bytes + head->payload_bytes);
  return true;
}

protocol::outcome protocol::handle(const header& head, std::span<const std::byte> payload, std::uint64_t now_ns) {
  if (phase_ == phase::serving) {
    if (!allocating_ && wire::is_request(head.op) && !head.is_reply &&
        wire::checksum(payload) != head.payload_checksum) {
      counters_.damaged_requests.add();
      reply(head, status::bad_checksum);
      return outcome::handled;
    }
    return on_request(head, payload, now_ns);
  }
  shake_hands(head, payload, now_ns);
  return outcome::handled;
}

void protocol::shake_hands(const header& head, std::span<const std::byte> payload, std::uint64_t now_ns) {
  using step = wire::server_handshake::step;
  switch (handshake_.take(head, payload)) {
    case step::malformed: return end(close_reason::malformed);
    case step::refused: return end_refused();
    case step::greeted:
      handshake_.challenge(!settings_.tokens->empty(), settings_.tokens->find(handshake_.said().tenant),
                           settings_.identity);
      return send_handshake();
    case step::proven: return attach(now_ns);
  }
}

void protocol::attach(std::uint64_t now_ns) {
  const wire::hello& said = handshake_.said();
  const bool joins = handshake_.joins();
  result<attachment> got = joins ? settings_.lent->join(said.tenant, said.join, said.channel)
                                 : settings_.lent->open(said.tenant, said.channel);
  if (!got) {
    if (joins && got.error().code == ENOENT) {
      handshake_.deny_session(got.error().message);
    } else {
      handshake_.refuse(got.error().message);
    }
    return end_refused();
  }
  mine_ = std::move(got).value();
  (joins ? counters_.sessions_joined : counters_.sessions_opened).add();
  phase_ = phase::awaiting_fence;
  try_welcome(now_ns);
}

// Only once an older connection of the channel can do nothing more, so that none of its writes lands after a write of
// this one.
void protocol::try_welcome(std::uint64_t now_ns) {
  if (!settings_.lent->readers().passed(mine_.fence)) {
    retry_at_ns_ = now_ns + retry_ns;
    return;
  }
  handshake_.welcome(settings_.lent->welcome_to(*mine_.to, maximum_outstanding));
  send_handshake();
  phase_ = phase::serving;
}

void protocol::send_handshake() {
  const std::span<const std::byte> message = handshake_.to_send();
  std::copy(message.begin(), message.end(), out_.space().begin());
  out_.add(message.size());
}

void protocol::end_refused() {
  send_handshake();
  flushes_ = true;
  end(close_reason::refused);
}

void protocol::append(header head, std::size_t payload_bytes) {
  head.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  head.payload_checksum = wire::checksum(payload_space().first(payload_bytes));
  wire::encode(head, out_.space().first<header_bytes>());
  out_.add(header_bytes + payload_bytes);
  work_left_ -= std::min(work_left_, payload_bytes);
}

void protocol::reply(const header& request, status result, std::size_t payload_bytes) {
  append({.op = request.op, .is_reply = true, .result = result, .cookie = request.cookie}, payload_bytes);
  ++answered_;
  counters_.requests[static_cast<std::size_t>(request.op) - first_request].add();
  if (result != status::ok) counters_.failed_requests.add();
}

void protocol::reply_not_allocated(const header& request) {
  reply(request, status::not_allocated);
  flushes_ = true;
  end(close_reason::foreign_slot);
}

void protocol::release_memory() {
  if (in_.empty()) in_.release_memory(offered_);
  if (out_.empty()) out_.release_memory(0);
}

std::string protocol::describe() const {
  return mine_.to ? "tenant '" + mine_.to->tenant_name() + "'" : "a client";
}

}  // namespace far::server
