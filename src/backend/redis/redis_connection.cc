// The phases of a connection. How it greets: redis_greeting.cc; what it does while it is ready: redis_commands.cc.
#include "backend/redis/redis_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

// Between two looks at a greeting, where no transfer is waited for.
constexpr std::uint64_t greeting_pause_ns = 10'000'000;

constexpr std::uint64_t shortest_backoff_ns = 1'000'000;
constexpr unsigned most_doublings = 10;
constexpr std::uint64_t session_wait_ns = 1'000'000;  // until another connection has opened it

// The most blocks that a block_table numbers.
constexpr std::size_t most_blocks = std::size_t{1} << 22;

}  // namespace

redis_connection::redis_connection(redis_settings chosen, std::unique_ptr<byte_stream> stream, redis_session& session,
                                   const platform::clock& time)
    : settings_(std::move(chosen)),
      renews_(settings_.writes),
      stream_(std::move(stream)),
      session_(session),
      time_(time),
      epoch_(session.epoch()),
      away_since_ns_(time.now_ns()),
      made_(platform::map_local(most_blocks)),
      received_(platform::map_local(receive_buffer_bytes)) {}

redis_connection::~redis_connection() {
  stream_->close();
  platform::unmap_local(received_, receive_buffer_bytes);
  platform::unmap_local(made_, most_blocks);
}

std::uint64_t redis_connection::advance(const completion_sink* sink) {
  const std::uint64_t now_ns = time_.now_ns();
  pushes_ = 0;
  if (session_.epoch() != epoch_) enter_epoch(sink);
  if ((phase_ == phase::idle || phase_ == phase::broken) && now_ns >= retry_at_ns_) start_connecting(now_ns);
  if (phase_ == phase::connecting) go_on_connecting();
  if (phase_ == phase::greeting) greet(now_ns, sink);
  if (phase_ == phase::ready) receive(now_ns, sink);
  if (phase_ == phase::ready) {
    build(now_ns, sink);
    send();
  }
  expire(now_ns, sink);
  return next_call_ns(now_ns);
}

void redis_connection::start_connecting(std::uint64_t now_ns) {
  const redis_session::view joined = session_.now();
  if (joined.epoch != epoch_) return;  // the next call begins with the new epoch
  if (!joined.run_id.is_known() && !settings_.writes) {
    retry_at_ns_ = now_ns + session_wait_ns;
    return;
  }
  attempt_deadline_ns_ = now_ns + settings_.timeout_ns;
  phase_ = phase::connecting;
  const int failed = stream_->connect();
  if (failed != 0) break_off(failed, stream_->explanation());
}

void redis_connection::go_on_connecting() {
  const int outcome = stream_->finish_connecting();
  if (outcome == EINPROGRESS) return;
  if (outcome != 0) return break_off(outcome, stream_->explanation());
  phase_ = phase::greeting;
  begin_greeting();
}

void redis_connection::lose_session(const char* why, const completion_sink* sink) {
  if (session_.lost(epoch_)) {
    log_line(log_level::error, "far tier %s has lost what this program stored there: %s", settings_.peer.c_str(), why);
  }
  enter_epoch(sink);
}

// Everything of an earlier epoch fails, and the connection begins anew. What is left of that epoch in the server goes
// with its lease.
void redis_connection::enter_epoch(const completion_sink* sink) {
  epoch_ = session_.epoch();
  if (phase_ != phase::idle && phase_ != phase::broken) break_off(ESTALE, "what was stored there is lost");
  drop_tasks();
  commands_.remove_if([&](command& dropped) {
    if (dropped.is_transfer()) finish_part(*dropped.owner, ESTALE, sink);
    return true;
  });
  pinging_ = false;
  transfer* current = pending_first_;
  pending_first_ = pending_last_ = nullptr;
  while (current != nullptr) {
    transfer& waiting = *current;
    current = waiting.next;
    if (waiting.epoch == epoch_) {
      enqueue(waiting);
      continue;
    }
    waiting.error_code = ESTALE;
    waiting.placed_bytes = waiting.io.length_bytes;
    if (waiting.outstanding == 0) waiting.owner->complete(waiting, sink);
  }
  retry_at_ns_ = 0;
}

void redis_connection::refuse(const char* why) {
  break_off(EACCES, why);
  refused_ = true;
}

void redis_connection::break_off(int code, const char* why) {
  const bool was_ready = phase_ == phase::ready;
  failure_code_ = code;
  static_cast<void>(
      std::snprintf(explanation_.data(), explanation_.size(), "%s", why[0] != '\0' ? why : std::strerror(code)));
  refused_ = false;
  stream_->close();
  phase_ = phase::broken;
  commands_.rewind();
  const std::uint64_t now_ns = time_.now_ns();
  if (was_ready) away_since_ns_.store(now_ns, std::memory_order_relaxed);
  retry_at_ns_ = now_ns + (shortest_backoff_ns << std::min(failures_, most_doublings));
  ++failures_;
  if (was_ready && code != ESTALE && session_.note_outage()) {
    log_line(log_level::warning, "far tier %s: the connection is lost (%s); trying again", settings_.peer.c_str(),
             code == EPIPE && why[0] == '\0' ? "the server has closed it" : explanation_.data());
  }
}

void redis_connection::expire(std::uint64_t now_ns, const completion_sink* sink) {
  const bool trying = phase_ == phase::connecting || phase_ == phase::greeting;
  if (trying && now_ns >= attempt_deadline_ns_) break_off(ETIMEDOUT, "it does not answer");
  bool overdue = false;
  for (std::size_t i = 0; i < commands_.size() && !overdue; ++i) overdue = now_ns >= commands_.at(i).deadline_ns;
  if (overdue) {
    // Replies on their way must not land, and the server is silent anyway.
    if (phase_ == phase::ready) break_off(ETIMEDOUT, "it does not answer");
    commands_.remove_if([&](command& late) {
      if (now_ns < late.deadline_ns) return false;
      // What is asked for the session's sake is asked until it is answered.
      if (!late.is_transfer()) late.deadline_ns = now_ns + settings_.timeout_ns;
      if (late.is_transfer()) finish_part(*late.owner, ETIMEDOUT, sink);
      return late.is_transfer();
    });
  }
  while (pending_first_ != nullptr && now_ns >= pending_first_->deadline_ns) {
    pending_first_->error_code = ETIMEDOUT;
    pop_failed(sink);
  }
}

std::uint64_t redis_connection::next_call_ns(std::uint64_t now_ns) const {
  std::uint64_t when_ns = std::numeric_limits<std::uint64_t>::max();
  if (phase_ == phase::idle || phase_ == phase::broken) when_ns = retry_at_ns_;
  // Nobody but tend() may be there to take the steps of a greeting.
  if (phase_ == phase::connecting || phase_ == phase::greeting) {
    when_ns = std::min(attempt_deadline_ns_, now_ns + greeting_pause_ns);
  }
  // While an answer is outstanding, nobody pings: the deadline below says how long the silence may last.
  if (phase_ == phase::ready && commands_.empty()) when_ns = std::max(heard_ns_ + ping_after_ns(), now_ns);
  if (phase_ == phase::ready && renews_) when_ns = std::min(when_ns, std::max(renew_at_ns_, now_ns));
  if (!commands_.empty()) when_ns = std::min(when_ns, commands_.at(0).deadline_ns);
  if (pending_first_ != nullptr) when_ns = std::min(when_ns, pending_first_->deadline_ns);
  return when_ns;
}

void redis_connection::restart_in_child() {
  lock.open_in_child();
  lock.assert_held();  // the child has one thread
  stream_->abandon();
  reader_.abandon();
  settings_.writes = false;
  control_ = nullptr;
  predecessor_number_ = 0;
  blocks_ = renewal_ = {};
  pinging_ = checking_policy_ = false;
  commands_.clear();
  pending_first_ = pending_last_ = nullptr;
  phase_ = phase::idle;
  retry_at_ns_ = 0;
  failures_ = 0;
}

}  // namespace far::backend
