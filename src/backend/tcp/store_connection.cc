#include "backend/tcp/store_connection.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include "base/log.h"

namespace far::backend {
namespace {

// Between two looks at a handshake, where no transfer is waited for.
constexpr std::uint64_t handshake_pause_ns = 10'000'000;

constexpr std::uint64_t shortest_backoff_ns = 1'000'000;
constexpr unsigned most_doublings = 10;
constexpr std::uint64_t session_wait_ns = 1'000'000;  // until another connection has opened it

// The most small requests, and questions, that wait for the next advance().
constexpr unsigned most_pushes_put_off = 16;
constexpr unsigned most_questions_put_off = 96;

}  // namespace

store_connection::store_connection(std::string peer, std::uint64_t timeout_ns, std::unique_ptr<byte_stream> stream,
                                   session_epoch& session, const platform::clock& time)
    : peer_(std::move(peer)),
      timeout_ns_(timeout_ns),
      stream_(std::move(stream)),
      session_(session),
      time_(time),
      epoch_(session.epoch()),
      away_since_ns_(time.now_ns()) {}

store_connection::~store_connection() {
  stream_->close();
}

std::uint64_t store_connection::advance(const completion_sink* sink) {
  const std::uint64_t now_ns = time_.now_ns();
  pushes_ = 0;
  if (phase_ == phase::retired) {
    pending_.expire(now_ns, sink);
    return pending_.empty() ? std::numeric_limits<std::uint64_t>::max() : pending_.front().deadline_ns;
  }
  if (session_.epoch() != epoch_) enter_epoch(sink);
  if ((phase_ == phase::idle || phase_ == phase::broken) && now_ns >= retry_at_ns_) start_connecting(now_ns);
  if (phase_ == phase::connecting) go_on_connecting();
  if (phase_ == phase::handshaking) shake_hands(now_ns, sink);
  if (phase_ == phase::ready) receive(now_ns, sink);
  if (phase_ == phase::ready) {
    build(now_ns, sink);
    send();
  }
  advance_others(sink);
  expire(now_ns, sink);
  return next_call_ns(now_ns);
}

void store_connection::push(const completion_sink* sink) {
  if (phase_ != phase::ready || session_.epoch() != epoch_) return;
  build_transfers(time_.now_ns(), sink);
  send();
}

// A system call a request is most of what a request costs, so those that come together leave together. While nothing is
// on its way, nothing is gained by waiting.
bool store_connection::push_soon(const completion_sink* sink) {
  if (pushes_ > 0 && pushes_ < most_pushes_put_off && awaits_replies()) {
    ++pushes_;
    return true;
  }
  push(sink);
  pushes_ = 1;
  return false;
}

bool store_connection::push_later(const completion_sink* sink) {
  if (++pushes_ < most_questions_put_off) return true;
  push(sink);
  pushes_ = 1;
  return false;
}

void store_connection::start_connecting(std::uint64_t now_ns) {
  switch (join_session()) {
    case joining::stale: return;  // the next call begins with the new epoch
    case joining::later: retry_at_ns_ = now_ns + session_wait_ns; return;
    case joining::now: break;
  }
  attempt_deadline_ns_ = now_ns + timeout_ns_;
  phase_ = phase::connecting;
  const int failed = stream_->connect();
  if (failed != 0) break_off(failed, stream_->explanation());
}

std::size_t store_connection::next_address(std::size_t home) {
  const std::uint64_t since_ns = away_since_ns();
  const bool is_away = since_ns != 0 && time_.now_ns() > since_ns + timeout_ns_;
  was_home_ = !is_away || !was_home_;
  if (was_home_) return home;
  elsewhere_ = stream_->address_after(elsewhere_);
  if (elsewhere_ == home) elsewhere_ = stream_->address_after(elsewhere_);
  return elsewhere_;
}

void store_connection::go_on_connecting() {
  const int outcome = stream_->finish_connecting();
  if (outcome == EINPROGRESS) return;
  if (outcome != 0) return break_off(outcome, stream_->explanation());
  phase_ = phase::handshaking;
  begin_handshake();
}

void store_connection::shake_hands(std::uint64_t now_ns, const completion_sink* sink) {
  while (phase_ == phase::handshaking) {
    std::ptrdiff_t moved = send_handshake();
    const std::span<std::byte> space = receive_space();
    const iovec room{space.data(), space.size()};
    const std::ptrdiff_t received = moved < 0 ? moved : stream_->try_receive({&room, 1});
    // Receiving may be what a stream needs to take bytes: TLS has a handshake of its own.
    if (received == 0 && moved == 0) moved = send_handshake();
    if (received < 0 || moved < 0) {
      return break_off(static_cast<int>(-std::min(received, moved)), stream_->explanation());
    }
    if (received == 0 && moved == 0) return;
    take_handshake(static_cast<std::size_t>(received), now_ns, sink);
  }
}

// Returns how many bytes the stream took, or its negative errno value.
std::ptrdiff_t store_connection::send_handshake() {
  const std::span<const std::byte> out = handshake_to_send();
  const iovec chunk{const_cast<std::byte*>(out.data()), out.size()};
  const std::ptrdiff_t sent = stream_->try_send(std::span(&chunk, out.empty() ? 0 : 1));
  if (sent > 0) handshake_sent(static_cast<std::size_t>(sent));
  return sent;
}

void store_connection::become_ready(std::uint64_t now_ns) {
  phase_ = phase::ready;
  refused_ = false;
  note_heard(now_ns);
  away_since_ns_.store(0, std::memory_order_relaxed);
  if (session_.note_recovery()) log_line(log_level::info, "far tier %s answers again", peer_.c_str());
}

void store_connection::enter_epoch(const completion_sink* sink) {
  epoch_ = session_.epoch();
  if (phase_ != phase::idle && phase_ != phase::broken) break_off(ESTALE, "what was stored there is lost");
  fail_stale(sink);
  pending_.fail_all_but(epoch_, ESTALE, sink);
  retry_at_ns_ = 0;
}

void store_connection::refuse(const char* why) {
  break_off(EACCES, why);
  refused_ = true;
}

void store_connection::break_off(int code, const char* why) {
  const bool was_ready = phase_ == phase::ready;
  failure_code_ = code;
  static_cast<void>(
      std::snprintf(explanation_.data(), explanation_.size(), "%s", why[0] != '\0' ? why : std::strerror(code)));
  refused_ = false;
  stream_->close();
  phase_ = phase::broken;
  rewind();
  const std::uint64_t now_ns = time_.now_ns();
  if (was_ready) away_since_ns_.store(now_ns, std::memory_order_relaxed);
  retry_at_ns_ = now_ns + (shortest_backoff_ns << std::min(failures_, most_doublings));
  ++failures_;
  if (was_ready && code != ESTALE && session_.note_outage()) {
    log_line(log_level::warning, "far tier %s: the connection is lost (%s); trying again", peer_.c_str(),
             code == EPIPE && why[0] == '\0' ? "the server has closed it" : explanation_.data());
  }
}

// Two servers may send us to each other until both know who has what, which may take as long as an operator needs.
void store_connection::redirect() {
  stream_->close();
  if (phase_ == phase::ready) away_since_ns_.store(time_.now_ns(), std::memory_order_relaxed);
  phase_ = phase::broken;
  retry_at_ns_ = time_.now_ns() + (shortest_backoff_ns << std::min(redirections_, most_doublings));
  ++redirections_;
  rewind();
}

void store_connection::send() {
  while (has_unsent()) {
    std::array<iovec, chunks_per_call> chunks;
    std::size_t total = 0;
    const std::size_t count = gather(chunks, &total);
    const std::ptrdiff_t sent = stream_->try_send({chunks.data(), count});
    if (sent < 0) return break_off(static_cast<int>(-sent), stream_->explanation());
    note_sent(static_cast<std::size_t>(sent));
    if (static_cast<std::size_t>(sent) < total) return;
  }
  if (!stream_->has_unsent()) return;
  const std::ptrdiff_t flushed = stream_->try_send({});
  if (flushed < 0) break_off(static_cast<int>(-flushed), stream_->explanation());
}

void store_connection::expire(std::uint64_t now_ns, const completion_sink* sink) {
  const bool trying = phase_ == phase::connecting || phase_ == phase::handshaking;
  if (trying && now_ns >= attempt_deadline_ns_) break_off(ETIMEDOUT, "it does not answer");
  if (awaits_replies()) expire_messages(now_ns, sink);
  pending_.expire(now_ns, sink);
}

std::uint64_t store_connection::next_call_ns(std::uint64_t now_ns) const {
  std::uint64_t when_ns = std::numeric_limits<std::uint64_t>::max();
  if (phase_ == phase::idle || phase_ == phase::broken) when_ns = retry_at_ns_;
  // Nobody but tend() may be there to take the steps of a handshake.
  if (phase_ == phase::connecting || phase_ == phase::handshaking) {
    when_ns = std::min(attempt_deadline_ns_, now_ns + handshake_pause_ns);
  }
  // While an answer is outstanding, nobody pings: the deadline below says how long the silence may last.
  if (phase_ == phase::ready && !awaits_replies()) when_ns = std::max(heard_ns_ + ping_after_ns(), now_ns);
  when_ns = std::min(when_ns, next_message_ns(now_ns));
  if (!pending_.empty()) when_ns = std::min(when_ns, pending_.front().deadline_ns);
  return when_ns;
}

void store_connection::retire() {
  stream_->close();
  rewind();
  phase_ = phase::retired;
  away_since_ns_.store(0, std::memory_order_relaxed);
  retire_others();
}

void store_connection::restart_phases() {
  stream_->abandon();
  pending_.clear();
  if (phase_ != phase::retired) phase_ = phase::idle;
  retry_at_ns_ = 0;
  failures_ = 0;
}

}  // namespace far::backend
