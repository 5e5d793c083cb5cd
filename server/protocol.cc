#include "server/protocol.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/xxh3_form.h"

namespace far::server {
namespace {

using wire::header;
using wire::header_bytes;
using wire::maximum_payload_bytes;
using wire::opcode;

// The most that one receive takes, unless a longer message has begun: more would fall out of the processor's cache
// before it is handled, and idle connections would keep the memory.
constexpr std::size_t receive_bytes = 64 * kib;
constexpr std::size_t stranger_bytes = page_bytes;
constexpr std::size_t longest_message_bytes = header_bytes + maximum_payload_bytes;
constexpr std::size_t in_bytes = longest_message_bytes + receive_bytes;

// The work that one connection may do before the others of its loop have their turn.
constexpr std::size_t turn_bytes = 2 * mib;
constexpr std::size_t message_cost_bytes = 64;

// How often a new connection checks whether the older one of its channel is harmless.
constexpr std::uint64_t retry_ns = 200'000;

constexpr std::uint32_t maximum_outstanding = 256;

std::uint64_t after(std::uint64_t start_ns, std::uint64_t duration_ns) {
  return start_ns > protocol::never - duration_ns ? protocol::never : start_ns + duration_ns;
}

}  // namespace

protocol::protocol(const protocol_settings& settings, loop_counters& counters, std::uint64_t now_ns,
                   std::string network)
    : settings_(settings),
      network_(std::move(network)),
      counters_(counters),
      in_(in_bytes),
      replies_(counters, turn_),
      requests_(*settings.lent, counters, replies_, turn_, settings.patience_ns, settings.devices),
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
  requests_.abandon();
  if (reason_ == close_reason::peer_gone) heed_last_words();
  settings_.lent->leave(mine_, now_ns);
  counters_.endings[static_cast<std::size_t>(reason_)].add();
  left_ = true;
}

// The end of a client whose tenant has asked for too much may be among messages that still wait.
void protocol::heed_last_words() {
  if (phase_ != phase::serving || mine_.is_fenced()) return;
  std::span<const std::byte> bytes = in_.filled();
  while (bytes.size() >= header_bytes) {
    const std::optional<header> head = wire::decode_header(bytes.first<header_bytes>());
    if (!head || head->is_reply || bytes.size() < header_bytes + head->payload_bytes) return;
    if (head->op == opcode::close) return settings_.lent->end(*mine_.to);
    if (head->op == opcode::leaving) settings_.lent->note_leaving(*mine_.to);
    bytes = bytes.subspan(header_bytes + head->payload_bytes);
  }
}

void protocol::end(close_reason reason) {
  if (reason_ == close_reason::none) reason_ = reason;
}

// Bytes that have been read already, or are still to be sent, would be missed by the process.
bool protocol::hand_over(int socket) const {
  return reason_ == close_reason::handed_over && !mine_.is_fenced() && in_.empty() && replies_.empty() &&
         requests_.hand_over(socket);
}

std::span<std::byte> protocol::receive_space() {
  if (is_over()) return {};
  // Before the handshake a client gets one page, so that many strangers cost little.
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
  replies_.sent(bytes, now_ns);
}

void protocol::work(std::uint64_t now_ns) {
  if (is_over()) return;
  if (mine_.to && mine_.is_fenced()) return end(close_reason::fenced);
  check_deadlines(now_ns);
  turn_.begin(turn_bytes);
  if (phase_ == phase::awaiting_fence) try_welcome(now_ns);
  if (drain_wanted_ && !drain_sent_ && phase_ == phase::serving && replies_.has_room()) {
    replies_.append({.op = opcode::draining}, 0);
    drain_sent_ = true;
  }
  while (!is_over() && handle_next(now_ns)) {
  }
  replies_.note_waiting(now_ns);
}

void protocol::check_deadlines(std::uint64_t now_ns) {
  const auto late = [&](std::uint64_t since_ns, std::uint64_t allowed_ns) {
    return now_ns >= after(since_ns, allowed_ns);
  };
  if (phase_ != phase::serving && late(started_at_ns_, settings_.patience_ns)) return end(close_reason::late_handshake);
  if (late(message_began_ns_, settings_.patience_ns)) return end(close_reason::slow_sender);
  if (late(replies_.unread_since_ns(), settings_.patience_ns)) return end(close_reason::slow_reader);
  if (late(heard_at_ns_, settings_.silence_ns)) return end(close_reason::silent);
}

std::uint64_t protocol::next_work_ns() const {
  if (is_over()) return never;
  if (turn_.is_tired) return 0;
  std::uint64_t next = std::min(turn_.retry_at_ns, after(heard_at_ns_, settings_.silence_ns));
  if (phase_ != phase::serving) next = std::min(next, after(started_at_ns_, settings_.patience_ns));
  next = std::min(next, after(message_began_ns_, settings_.patience_ns));
  return std::min(next, after(replies_.unread_since_ns(), settings_.patience_ns));
}

// Returns whether the next message was complete and has been handled.
bool protocol::handle_next(std::uint64_t now_ns) {
  const std::span<const std::byte> bytes = in_.filled();
  if (bytes.empty()) {
    message_began_ns_ = never;
    return false;
  }
  if (!replies_.has_room()) {
    // The client is a slow reader; its messages wait.
    message_began_ns_ = never;
    return false;
  }
  if (phase_ == phase::awaiting_fence) return false;
  if (turn_.work_left_bytes == 0) {
    turn_.is_tired = true;
    return false;
  }
  const auto incomplete = [&] {
    if (message_began_ns_ == never) message_began_ns_ = now_ns;
    return false;
  };
  if (bytes.size() < header_bytes) return incomplete();
  const std::optional<header> head = wire::decode_header(bytes.first<header_bytes>());
  // Before its handshake a client must not even be able to make us buffer long messages.
  const std::size_t longest = phase_ == phase::serving ? maximum_payload_bytes : wire::maximum_handshake_bytes;
  if (!head || head->payload_bytes > longest) {
    end(close_reason::malformed);
    return false;
  }
  const std::size_t whole_bytes = header_bytes + head->payload_bytes;
  if (bytes.size() < whole_bytes) return incomplete();
  message_began_ns_ = never;
  // What has begun goes on: others of the tenant wait for it, and its client would begin it again.
  if (!requests_.is_under_way()) {
    if (is_delayed(now_ns)) return false;
    if (round_bytes_ == 0) {
      round_bytes_ = bytes.size();
      requests_.begin_round();
    }
  }
  const std::uint64_t moved_before = moved_bytes();
  const bool was_serving = phase_ == phase::serving;
  if (!is_handled(*head, bytes.subspan(header_bytes, head->payload_bytes), now_ns)) return false;
  if (was_serving) mine_.to->rates().charge(moved_bytes() - moved_before, now_ns);
  in_.remove(whole_bytes);
  round_bytes_ -= std::min(round_bytes_, whole_bytes);
  turn_.charge(message_cost_bytes + head->payload_bytes);
  return true;
}

// Whether its tenant has used up what it may ask for now. Then messages stay where they are, and when the buffer is
// full, nothing is read from the client: only it waits.
bool protocol::is_delayed(std::uint64_t now_ns) {
  const std::uint64_t until_ns = phase_ == phase::serving ? mine_.to->rates().wait_until_ns(now_ns) : 0;
  if (until_ns == 0) return false;
  turn_.retry_at_ns = until_ns;
  heard_at_ns_ = now_ns;  // it is not silent, but not listened to
  return true;
}

std::uint64_t protocol::moved_bytes() const {
  return counters_.bytes_read.value() + counters_.bytes_written.value() + counters_.bytes_called.value();
}

// False: the message stays where it is, and is handled again later.
bool protocol::is_handled(const header& head, std::span<const std::byte> payload, std::uint64_t now_ns) {
  if (phase_ != phase::serving) {
    shake_hands(head, payload, now_ns);
    return true;
  }
  const request_handler::outcome got = requests_.handle(head, payload, now_ns);
  if (requests_.reason() != close_reason::none) {
    flushes_ = requests_.flushes();
    end(requests_.reason());
  }
  return got == request_handler::outcome::handled;
}

// Whoever names a session of its tenant is its client: nobody else knows the 128 bits, unless he can read the
// connection, and then he can also guess at proofs without us. Its bytes must not depend on what others do at its
// address.
bool protocol::is_throttled(std::uint64_t now_ns) const {
  return !is_returning_ && settings_.failures != nullptr && !settings_.tokens->empty() &&
         !settings_.failures->may_try(network_, now_ns);
}

// A client may have to wait although it has not failed itself, and before its proof is looked at: the answer must not
// tell whether it was the right one.
void protocol::shake_hands(const header& head, std::span<const std::byte> payload, std::uint64_t now_ns) {
  using step = wire::server_handshake::step;
  const auto end_throttled = [this] {
    handshake_.refuse(too_many_failures);
    end_refused(close_reason::throttled);
  };
  if (head.op != opcode::hello && is_throttled(now_ns)) return end_throttled();
  switch (handshake_.take(head, payload)) {
    case step::malformed: return end(close_reason::malformed);
    case step::refused:
      if (settings_.failures != nullptr && head.op == opcode::proof && !is_returning_) {
        settings_.failures->note(network_, now_ns);
      }
      return end_refused(close_reason::refused);
    case step::greeted:
      is_returning_ = handshake_.joins() && settings_.lent->knows(handshake_.said().tenant, handshake_.said().join);
      if (is_throttled(now_ns)) return end_throttled();
      handshake_.challenge(!settings_.tokens->empty(), settings_.tokens->tokens_of(handshake_.said().tenant),
                           settings_.identity);
      return send_handshake();
    case step::proven: return attach(now_ns);
  }
}

void protocol::attach(std::uint64_t now_ns) {
  if (!turned_away_.empty()) {
    handshake_.refuse(turned_away_);
    return end_refused(close_reason::refused);
  }
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
    return end_refused(close_reason::refused);
  }
  mine_ = std::move(got).value();
  (joins ? counters_.sessions_joined : counters_.sessions_opened).add();
  phase_ = phase::awaiting_fence;
  try_welcome(now_ns);
}

// Waits until an older connection of the channel can do nothing more, so that none of its writes lands after a write of
// this one.
void protocol::try_welcome(std::uint64_t now_ns) {
  if (!settings_.lent->readers().passed(mine_.fence)) {
    turn_.retry_at_ns = now_ns + retry_ns;
    return;
  }
  handshake_.welcome(settings_.lent->welcome_to(*mine_.to, maximum_outstanding));
  send_handshake();
  requests_.serve(*mine_.to, handshake_.version());
  phase_ = phase::serving;
}

void protocol::send_handshake() {
  replies_.append_encoded(handshake_.to_send());
}

void protocol::end_refused(close_reason reason) {
  send_handshake();
  flushes_ = true;
  end(reason);
}

void protocol::release_memory() {
  if (in_.empty()) in_.release_memory(offered_);
  replies_.release_memory();
}

// With its token a tenant could join a session by its name, so the log has a part of a hash of it.
event_party protocol::party(const std::string& peer) const {
  event_party known{.peer = peer, .reason = name_of(reason_)};
  if (!mine_.to) return known;
  known.tenant = mine_.to->tenant_name();
  std::array<char, 9> short_name{};
  const std::uint64_t hash = fastest_xxh3().hash_64(mine_.to->id().data(), mine_.to->id().size());
  static_cast<void>(
      std::snprintf(short_name.data(), short_name.size(), "%08x", static_cast<unsigned>(hash & 0xffff'ffffu)));
  known.session = short_name.data();
  return known;
}

std::string protocol::describe() const {
  return mine_.to ? "tenant '" + mine_.to->tenant_name() + "'" : "a client";
}

}  // namespace far::server
