// The phases of a connection. What it does while it is ready: connection_messages.cc.
#include "backend/tcp/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

// Between two looks at a handshake, where no transfer is waited for.
constexpr std::uint64_t handshake_pause_ns = 10'000'000;

constexpr std::uint64_t shortest_backoff_ns = 1'000'000;
constexpr unsigned most_doublings = 10;
constexpr std::uint64_t session_wait_ns = 1'000'000;  // until another connection has opened it

}  // namespace

tcp_connection::tcp_connection(tcp_connection_settings chosen, std::unique_ptr<byte_stream> stream,
                               tcp_session& session, const wire::credentials& shown, const platform::clock& time,
                               control_source* control)
    : settings_(std::move(chosen)),
      stream_(std::move(stream)),
      session_(session),
      time_(time),
      control_(control),
      handshake_(shown),
      channel_(settings_.channel),
      opens_session_(settings_.opens_session),
      epoch_(session.epoch()),
      away_since_ns_(time.now_ns()),
      received_(platform::map_local(receive_buffer_bytes)) {}

tcp_connection::~tcp_connection() {
  stream_->close();
  platform::unmap_local(received_, receive_buffer_bytes);
}

std::uint64_t tcp_connection::advance(const completion_sink* sink) {
  const std::uint64_t now_ns = time_.now_ns();
  pushes_ = 0;
  if (session_.epoch() != epoch_) enter_epoch(sink);
  if ((phase_ == phase::idle || phase_ == phase::broken) && now_ns >= retry_at_ns_) start_connecting(now_ns);
  if (phase_ == phase::connecting) go_on_connecting();
  if (phase_ == phase::handshaking) shake_hands(now_ns, sink);
  if (phase_ == phase::ready) receive(now_ns, sink);
  if (phase_ == phase::ready) {
    build(now_ns, sink);
    send();
  }
  expire(now_ns, sink);
  return next_call_ns(now_ns);
}

void tcp_connection::start_connecting(std::uint64_t now_ns) {
  const tcp_session::view joined = session_.now();
  if (joined.epoch != epoch_) return;  // the next call begins with the new epoch
  if (joined.id == wire::session_id{} && !opens_session_) {
    retry_at_ns_ = now_ns + session_wait_ns;
    return;
  }
  joining_ = joined.id;
  attempt_deadline_ns_ = now_ns + settings_.timeout_ns;
  phase_ = phase::connecting;
  oldest_version_ = joined.id == wire::session_id{} ? wire::oldest_version : joined.version;
  // Another address may be another server, which does not know the session and would take it for lost.
  if (joined.id != wire::session_id{}) stream_->use_address(joined.address);
  const int failed = stream_->connect();
  if (failed != 0) break_off(failed, stream_->explanation());
}

void tcp_connection::go_on_connecting() {
  const int outcome = stream_->finish_connecting();
  if (outcome == EINPROGRESS) return;
  if (outcome != 0) return break_off(outcome, stream_->explanation());
  phase_ = phase::handshaking;
  handshake_.begin(joining_, channel_, oldest_version_);
}

void tcp_connection::shake_hands(std::uint64_t now_ns, const completion_sink* sink) {
  while (phase_ == phase::handshaking) {
    std::ptrdiff_t moved = send_handshake();
    const iovec room{received_ + received_end_, receive_buffer_bytes - received_end_};
    const std::ptrdiff_t received = moved < 0 ? moved : stream_->try_receive({&room, 1});
    // Receiving may be what a stream needs to take bytes: TLS has a handshake of its own.
    if (received == 0 && moved == 0) moved = send_handshake();
    if (received < 0 || moved < 0) {
      return break_off(static_cast<int>(-std::min(received, moved)), stream_->explanation());
    }
    if (received == 0 && moved == 0) return;
    received_end_ += static_cast<std::size_t>(received);
    take_handshake(now_ns, sink);
  }
}

// Returns how many bytes the stream took, or its negative errno value.
std::ptrdiff_t tcp_connection::send_handshake() {
  const std::span<const std::byte> out = handshake_.to_send();
  const iovec chunk{const_cast<std::byte*>(out.data()), out.size()};
  const std::ptrdiff_t sent = stream_->try_send(std::span(&chunk, out.empty() ? 0 : 1));
  if (sent > 0) handshake_.sent(static_cast<std::size_t>(sent));
  return sent;
}

// Takes the messages of the handshake that have come in full.
void tcp_connection::take_handshake(std::uint64_t now_ns, const completion_sink* sink) {
  while (phase_ == phase::handshaking && received_end_ - received_begin_ >= wire::header_bytes) {
    const std::byte* const at = received_ + received_begin_;
    const std::optional<wire::header> head =
        wire::decode_header(std::span<const std::byte, wire::header_bytes>(at, wire::header_bytes));
    if (!head || head->payload_bytes > wire::maximum_handshake_bytes) {
      return break_off(EPROTO, "it does not speak the protocol of farheapd; with tls=1, or without?");
    }
    if (received_end_ - received_begin_ < wire::header_bytes + head->payload_bytes) return;
    received_begin_ += wire::header_bytes + head->payload_bytes;
    switch (handshake_.take(*head, {at + wire::header_bytes, head->payload_bytes})) {
      case wire::client_handshake::step::more: break;
      case wire::client_handshake::step::done: return become_ready(now_ns, sink);
      case wire::client_handshake::step::refused: return be_refused();
      case wire::client_handshake::step::unknown_session: return lose_session(sink);
    }
  }
}

void tcp_connection::be_refused() {
  std::array<char, sizeof explanation_> why{};
  static_cast<void>(std::snprintf(why.data(), why.size(), "it %s", handshake_.explanation()));
  break_off(EACCES, why.data());
  refused_ = true;
}

void tcp_connection::become_ready(std::uint64_t now_ns, const completion_sink* sink) {
  const bool opened = joining_ == wire::session_id{};
  const bool is_ours = opened ? session_.opened(epoch_, handshake_.welcome(), handshake_.version(), stream_->address())
                              : session_.epoch() == epoch_;
  if (!is_ours) return break_off(ESTALE, "the session has changed meanwhile");
  session_.note_identity(handshake_.identity());
  phase_ = phase::ready;
  refused_ = false;
  heard_ns_ = now_ns;
  away_since_ns_.store(0, std::memory_order_relaxed);
  pool_.limit(handshake_.welcome().maximum_outstanding);
  cursor_ = pool_.first();
  cursor_bytes_ = 0;
  if (session_.note_recovery()) log_line(log_level::info, "far tier %s answers again", settings_.peer.c_str());
  // The server may have said more already.
  if (!parse(now_ns, sink)) break_off(EPROTO, "it broke the protocol");
}

void tcp_connection::lose_session(const completion_sink* sink) {
  if (session_.lost(epoch_)) {
    log_line(log_level::error,
             "far tier %s has lost the slots of this program: it was restarted, or not reached for longer than its "
             "lease",
             settings_.peer.c_str());
  }
  enter_epoch(sink);
}

// Everything of an earlier epoch fails, and the connection begins anew with the present session.
void tcp_connection::enter_epoch(const completion_sink* sink) {
  epoch_ = session_.epoch();
  if (phase_ != phase::idle && phase_ != phase::broken) break_off(ESTALE, "the session is lost");
  for (message* current = pool_.first(); current != nullptr;) {
    message& stale = *current;
    current = stale.next;
    if (stale.epoch != epoch_) fail(stale, ESTALE, sink);
  }
  cursor_ = pool_.first();
  fail_pending(ESTALE, sink, epoch_);
  retry_at_ns_ = 0;
}

void tcp_connection::break_off(int code, const char* why) {
  const bool was_ready = phase_ == phase::ready;
  failure_code_ = code;
  static_cast<void>(
      std::snprintf(explanation_.data(), explanation_.size(), "%s", why[0] != '\0' ? why : std::strerror(code)));
  refused_ = false;
  stream_->close();
  phase_ = phase::broken;
  received_begin_ = received_end_ = 0;
  reply_ = nullptr;
  for (message* current = pool_.first(); current != nullptr; current = current->next) current->sent = false;
  cursor_ = pool_.first();
  cursor_bytes_ = 0;
  const std::uint64_t now_ns = time_.now_ns();
  if (was_ready) away_since_ns_.store(now_ns, std::memory_order_relaxed);
  retry_at_ns_ = now_ns + (shortest_backoff_ns << std::min(failures_, most_doublings));
  ++failures_;
  if (was_ready && code != ESTALE && session_.note_outage()) {
    log_line(log_level::warning, "far tier %s: the connection is lost (%s); trying again", settings_.peer.c_str(),
             code == EPIPE && why[0] == '\0' ? "the server has closed it" : explanation_.data());
  }
}

void tcp_connection::expire(std::uint64_t now_ns, const completion_sink* sink) {
  const bool trying = phase_ == phase::connecting || phase_ == phase::handshaking;
  if (trying && now_ns >= attempt_deadline_ns_) break_off(ETIMEDOUT, "it does not answer");
  if (pool_.first() != nullptr) expire_messages(now_ns, sink);
  while (pending_first_ != nullptr && now_ns >= pending_first_->deadline_ns) {
    pending_first_->error_code = ETIMEDOUT;
    pop_failed(sink);
  }
}

void tcp_connection::expire_messages(std::uint64_t now_ns, const completion_sink* sink) {
  bool overdue = false;
  // In the order of deadlines, but for a control message, which is asked for until it is answered.
  for (message* current = pool_.first(); current != nullptr && now_ns >= current->deadline_ns;) {
    message& late = *current;
    current = late.next;
    overdue = true;
    if (late.part_count == 0) {
      late.deadline_ns = now_ns + settings_.timeout_ns;
    } else {
      fail(late, ETIMEDOUT, sink);
    }
  }
  if (!overdue) return;
  // Replies on their way must not land, and the server is silent anyway.
  if (phase_ == phase::ready) break_off(ETIMEDOUT, "it does not answer");
  cursor_ = pool_.first();
}

std::uint64_t tcp_connection::next_call_ns(std::uint64_t now_ns) const {
  std::uint64_t when_ns = std::numeric_limits<std::uint64_t>::max();
  if (phase_ == phase::idle || phase_ == phase::broken) when_ns = retry_at_ns_;
  // Nobody but tend() may be there to take the steps of a handshake.
  if (phase_ == phase::connecting || phase_ == phase::handshaking) {
    when_ns = std::min(attempt_deadline_ns_, now_ns + handshake_pause_ns);
  }
  // While an answer is outstanding, nobody pings: the deadline below says how long the silence may last.
  if (phase_ == phase::ready && pool_.first() == nullptr) when_ns = std::max(heard_ns_ + ping_after_ns(), now_ns);
  if (pool_.first() != nullptr) when_ns = std::min(when_ns, pool_.first()->deadline_ns);
  if (pending_first_ != nullptr) when_ns = std::min(when_ns, pending_first_->deadline_ns);
  return when_ns;
}

void tcp_connection::end_session() {
  if (phase_ != phase::ready || cursor_ != nullptr) return;
  const wire::header head{.op = wire::opcode::close};
  std::array<std::byte, wire::header_bytes> bytes{};
  wire::encode(head, bytes);
  const iovec chunk{bytes.data(), bytes.size()};
  // When there is no room for it, the session ends with its grace period.
  static_cast<void>(stream_->try_send({&chunk, 1}));
}

void tcp_connection::restart_in_child(std::uint32_t channel) {
  lock.open_in_child();
  lock.assert_held();  // the child has one thread
  stream_->abandon();
  channel_ = channel;
  opens_session_ = false;
  control_ = nullptr;
  control_message_ = ping_message_ = nullptr;
  pool_.reset();
  pending_first_ = pending_last_ = nullptr;
  cursor_ = nullptr;
  cursor_bytes_ = 0;
  reply_ = nullptr;
  received_begin_ = received_end_ = 0;
  phase_ = phase::idle;
  retry_at_ns_ = 0;
  failures_ = 0;
}

void tcp_connection::validate() const {
  bool sent = true;
  for (const message* current = pool_.first(); current != nullptr; current = current->next) {
    FAR_CHECK(current->in_use && pool_.find(current->cookie) == current, "a listed message is in use");
    FAR_CHECK(current->epoch == epoch_, "messages are of the connection's epoch");
    if (current == cursor_) sent = false;
    FAR_CHECK(current->sent == sent || phase_ != phase::ready, "messages are sent in their order");
    std::size_t bytes = 0;
    for (const message::part& part : current->all()) {
      FAR_CHECK(part.owner->outstanding > 0, "a transfer knows that a message holds a part of it");
      bytes += part.length_bytes;
    }
    FAR_CHECK(bytes == current->data_bytes, "a message counts its bytes");
  }
  FAR_CHECK(reply_ == nullptr || (phase_ == phase::ready && reply_->sent), "a reply belongs to a sent request");
  FAR_CHECK(phase_ != phase::ready || (cursor_ == nullptr) == sent, "the cursor stands at the first unsent message");
}

}  // namespace far::backend
