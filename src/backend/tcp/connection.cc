#include "backend/tcp/connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <optional>
#include <utility>

#include "base/log.h"

namespace far::backend {

tcp_connection::tcp_connection(tcp_connection_settings chosen, std::unique_ptr<byte_stream> stream,
                               tcp_session& session, const wire::credentials& shown, const platform::clock& time,
                               control_source* control)
    : store_connection(std::move(chosen.peer), chosen.timeout_ns, std::move(stream), session, time),
      session_(session),
      handshake_(shown),
      channel_(chosen.channel),
      opens_session_(chosen.opens_session),
      requests_(chosen.timeout_ns),
      replies_(receive_buffer_bytes) {
  requests_.set_control(control);
}

store_connection::joining tcp_connection::join_session() {
  const tcp_session::view joined = session_.now();
  if (joined.epoch != epoch()) return joining::stale;
  if (joined.id == wire::session_id{} && !opens_session_) return joining::later;
  joining_ = joined.id;
  // Not the version of the session itself: an older server, which cannot have the session, must be able to say so.
  oldest_version_ = joined.id == wire::session_id{}
                        ? wire::oldest_version
                        : std::min(joined.version, wire::client_handshake::first_version_that_proves);
  if (joined.id != wire::session_id{}) stream().use_address(next_address(joined.address));
  return joining::now;
}

void tcp_connection::begin_handshake() {
  handshake_.begin(joining_, channel_, oldest_version_);
}

std::span<const std::byte> tcp_connection::handshake_to_send() {
  return handshake_.to_send();
}

void tcp_connection::handshake_sent(std::size_t bytes) {
  handshake_.sent(bytes);
}

std::span<std::byte> tcp_connection::receive_space() {
  return replies_.space();
}

// Takes the messages of the handshake that have come in full.
void tcp_connection::take_handshake(std::size_t bytes, std::uint64_t now_ns, const completion_sink* sink) {
  replies_.add(bytes);
  while (now() == phase::handshaking && replies_.filled().size() >= wire::header_bytes) {
    const std::span<const std::byte> filled = replies_.filled();
    const std::optional<wire::header> head = wire::decode_header(filled.first<wire::header_bytes>());
    if (!head || head->payload_bytes > wire::maximum_handshake_bytes) {
      return break_off(EPROTO, "it does not speak the protocol of farheapd; with tls=1, or without?");
    }
    if (filled.size() < wire::header_bytes + head->payload_bytes) return;
    replies_.take(wire::header_bytes + head->payload_bytes);
    handshake_.bind(stream().binding());
    switch (handshake_.take(*head, filled.subspan(wire::header_bytes, head->payload_bytes))) {
      case wire::client_handshake::step::more: break;
      case wire::client_handshake::step::done: return be_welcomed(now_ns, sink);
      case wire::client_handshake::step::refused: return be_refused();
      case wire::client_handshake::step::unknown_session: return be_unknown(sink);
    }
  }
}

void tcp_connection::be_refused() {
  std::array<char, 448> why{};
  static_cast<void>(std::snprintf(why.data(), why.size(), "it %s", handshake_.explanation()));
  refuse(why.data());
}

void tcp_connection::be_welcomed(std::uint64_t now_ns, const completion_sink* sink) {
  const bool opened = joining_ == wire::session_id{};
  const bool is_ours = opened ? session_.opened(epoch(), handshake_.welcome(), handshake_.version(), stream().address())
                              : session_.epoch() == epoch();
  if (!is_ours) return break_off(ESTALE, "the session has changed meanwhile");
  if (session_.moved(epoch(), stream().address())) {
    log_line(log_level::info, "far tier %s has been found at another address of its name", peer());
  }
  session_.note_identity(handshake_.identity());
  requests_.limit(handshake_.welcome().maximum_outstanding);
  requests_.speak(handshake_.version());
  requests_.rewind();
  become_ready(now_ns);
  // The server may have said more already.
  if (!parse(now_ns, sink)) break_off(EPROTO, "it broke the protocol");
}

// Another server at another address of the name says so in good faith, and ours may still have the bytes. When it may
// have given them up as well, nothing is lost by believing the other.
void tcp_connection::be_unknown(const completion_sink* sink) {
  const tcp_session::view joined = session_.now();
  const bool is_elsewhere = joined.epoch == epoch() && stream().address() != joined.address;
  if (is_elsewhere && session_.stores_anything() && !session_.lease_is_over(time().now_ns())) {
    if (session_.note_stranger(epoch())) {
      log_line(log_level::warning,
               "far tier %s: another server, without the bytes of this program, answers at an address of its name. "
               "They may still be at the address of before, which is tried until the lease there is over. If that "
               "server is gone for good, with other copies or parity: farheap remove-server, then add-server",
               peer());
    }
    return break_off(EADDRNOTAVAIL, "another server answers at this address of its name");
  }
  lose_session(sink);
}

void tcp_connection::lose_session(const completion_sink* sink) {
  const bool stored_anything = session_.stores_anything();
  if (session_.lost(epoch()) && stored_anything) {
    log_line(log_level::error,
             "far tier %s has lost the slots of this program: it was restarted, or not reached for longer than its "
             "lease",
             peer());
  }
  enter_epoch(sink);
}

void tcp_connection::receive(std::uint64_t now_ns, const completion_sink* sink) {
  while (now() == phase::ready) {
    std::array<iovec, chunks_per_call> chunks;
    std::size_t direct_bytes = 0;
    const std::size_t count = replies_.place(chunks, &direct_bytes);
    const std::size_t room = direct_bytes + replies_.space().size();
    const std::ptrdiff_t outcome = stream().try_receive({chunks.data(), count});
    if (outcome < 0) return break_off(static_cast<int>(-outcome), stream().explanation());
    if (outcome == 0) return;
    const auto bytes = static_cast<std::size_t>(outcome);
    note_heard(now_ns);
    replies_.note_received(bytes, direct_bytes);
    if (!parse(now_ns, sink)) return break_off(EPROTO, "a reply was damaged, or broke the protocol");
    if (bytes < room) return;  // there is no more
  }
}

bool tcp_connection::parse(std::uint64_t now_ns, const completion_sink* sink) {
  const bool sound = replies_.parse(requests_, pending(), epoch(), now_ns, sink);
  if (requests_.take_answered()) note_answer();
  return sound;
}

void tcp_connection::build(std::uint64_t now_ns, const completion_sink* sink) {
  requests_.build(pending(), epoch(), wants_ping(now_ns), now_ns, sink);
}

void tcp_connection::build_transfers(std::uint64_t now_ns, const completion_sink* sink) {
  build(now_ns, sink);
}

std::size_t tcp_connection::gather(std::span<iovec> chunks, std::size_t* total_bytes) {
  return requests_.gather(chunks, total_bytes);
}

void tcp_connection::rewind() {
  replies_.reset();
  requests_.rewind();
}

void tcp_connection::fail_stale(const completion_sink* sink) {
  requests_.fail_all_but(epoch(), ESTALE, sink);
}

void tcp_connection::expire_messages(std::uint64_t now_ns, const completion_sink* sink) {
  if (!requests_.expire(now_ns, sink)) return;
  // Replies on their way must not land, and the server is silent anyway.
  if (now() == phase::ready) break_off(ETIMEDOUT, "it does not answer");
  requests_.restart_cursor();
}

std::uint64_t tcp_connection::next_message_ns(std::uint64_t) const {
  return requests_.first_deadline_ns();
}

// A message beside the requests, between two of them; to which no answer is awaited.
bool tcp_connection::say(wire::opcode notice) {
  if (now() != phase::ready || requests_.has_unsent() || stream().has_unsent()) return false;
  const wire::header head{.op = notice};
  std::array<std::byte, wire::header_bytes> bytes{};
  wire::encode(head, bytes);
  const iovec chunk{bytes.data(), bytes.size()};
  const std::ptrdiff_t sent = stream().try_send({&chunk, 1});
  // The next bytes would be taken for the rest of half a message.
  if (sent > 0 && sent < static_cast<std::ptrdiff_t>(bytes.size())) break_off(EPIPE, "");
  return sent == static_cast<std::ptrdiff_t>(bytes.size());
}

bool tcp_connection::end_session() {
  return say(wire::opcode::close);
}

bool tcp_connection::say_leaving() {
  constexpr std::uint16_t first_version = 3;
  if (now() == phase::ready && handshake_.version() < first_version) return true;
  return say(wire::opcode::leaving);
}

void tcp_connection::restart_in_child(std::uint32_t channel) {
  lock.open_in_child();
  lock.assert_held();  // the child has one thread
  restart_phases();
  channel_ = channel;
  opens_session_ = false;
  requests_.reset();
  replies_.reset();
}

void tcp_connection::validate() const {
  const bool is_ready = now() == phase::ready;
  requests_.validate(epoch(), is_ready);
  replies_.validate(is_ready);
}

}  // namespace far::backend
