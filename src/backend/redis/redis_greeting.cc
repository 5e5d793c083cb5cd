// How a connection begins: who we are, what the server is, and the end of the connection before.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "backend/redis/command_writer.h"
#include "backend/redis/redis_connection.h"
#include "base/check.h"
#include "base/log.h"

namespace far::backend {
namespace {

// Writes to a string only while it exists, so that one that was deleted does not come back full of zeros. -1: it does
// not exist.
constexpr std::string_view write_script =
    "if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end "
    "return redis.call('SETRANGE', KEYS[1], ARGV[1], ARGV[2])";

// Makes a string of zeros that lives for so many milliseconds.
constexpr std::string_view make_script =
    "redis.call('SETRANGE', KEYS[1], ARGV[1] - 1, '\\0') "
    "return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

bool is_temporary(std::string_view failure) {
  for (const std::string_view begin : {"LOADING", "MASTERDOWN", "BUSY", "ERR max number of clients"}) {
    if (failure.starts_with(begin)) return true;
  }
  return false;
}

}  // namespace

void redis_connection::add_step(step added, std::initializer_list<std::string_view> arguments) {
  std::size_t most_bytes = 32;
  for (const std::string_view argument : arguments) most_bytes += argument.size() + 32;
  const std::size_t before = greeting_.size();
  greeting_.resize(before + most_bytes);
  command_writer writer({greeting_.data() + before, most_bytes});
  writer.begin(arguments.size());
  for (const std::string_view argument : arguments) writer.text(argument);
  greeting_.resize(before + writer.size());
  steps_[step_count_++] = added;
}

void redis_connection::begin_greeting() {
  reader_.reset();
  greeting_.clear();
  step_count_ = steps_done_ = 0;
  if (!settings_.password.empty() && settings_.user.empty()) add_step(step::authenticate, {"AUTH", settings_.password});
  if (!settings_.user.empty()) add_step(step::authenticate, {"AUTH", settings_.user, settings_.password});
  if (settings_.database != 0) add_step(step::select, {"SELECT", std::to_string(settings_.database)});
  add_step(step::facts, {"INFO"});
  if (!settings_.writes) return;
  add_step(step::number, {"CLIENT", "ID"});
  add_step(step::write_script, {"SCRIPT", "LOAD", write_script});
  add_step(step::make_script, {"SCRIPT", "LOAD", make_script});
}

// Returns how many bytes the stream took, or its negative errno value.
std::ptrdiff_t redis_connection::send_greeting() {
  const iovec chunk{greeting_.data(), greeting_.size()};
  const std::ptrdiff_t sent = stream_->try_send(std::span(&chunk, greeting_.empty() ? 0 : 1));
  if (sent > 0) greeting_.erase(0, static_cast<std::size_t>(sent));
  return sent;
}

void redis_connection::greet(std::uint64_t now_ns, const completion_sink* sink) {
  while (phase_ == phase::greeting) {
    std::ptrdiff_t moved = send_greeting();
    const iovec room{received_, receive_buffer_bytes};
    const std::ptrdiff_t received = moved < 0 ? moved : stream_->try_receive({&room, 1});
    // Receiving may be what a stream needs to take bytes: TLS has a handshake of its own.
    if (received == 0 && moved == 0) moved = send_greeting();
    if (received < 0 || moved < 0) {
      return break_off(static_cast<int>(-std::min(received, moved)), stream_->explanation());
    }
    if (received == 0 && moved == 0) return;
    bool sound = reader_.feed({received_, static_cast<std::size_t>(received)});
    reply_reader::outcome outcome = reply_reader::outcome::incomplete;
    while (sound && phase_ == phase::greeting && steps_done_ < step_count_ &&
           (outcome = reader_.next(*this)) == reply_reader::outcome::taken) {
      take_step(sink);
    }
    sound = sound && outcome != reply_reader::outcome::broken;
    if (!sound)
      return break_off(EPROTO, "it does not speak the protocol of Redis; rediss: is with TLS, redis: without");
    if (phase_ == phase::greeting && steps_done_ == step_count_) become_ready(now_ns);
  }
}

void redis_connection::take_step(const completion_sink* sink) {
  const step taken = steps_[steps_done_++];
  if (reply_.is == redis_reply::kind::failure) {
    std::array<char, 400> why{};
    if (is_temporary(reply_.text)) return break_off(EHOSTDOWN, reply_text_.data());
    const char* const todo = reply_.text.starts_with("NOPERM") ? "; docs/run.md lists the commands that its user needs"
                                                               : "; check 'user', 'password-file' and 'db'";
    static_cast<void>(std::snprintf(why.data(), why.size(), "it answers: %.250s%s", reply_text_.data(), todo));
    return refuse(why.data());
  }
  const auto keep_name = [&](std::array<char, 41>& into) {
    const std::size_t length = std::min(reply_.text.size(), into.size() - 1);
    std::copy_n(reply_.text.data(), length, into.data());
    into[length] = '\0';
  };
  switch (taken) {
    case step::authenticate:
    case step::select:
    case step::end_other: break;
    case step::facts: return take_facts(sink);
    case step::number: own_number_ = static_cast<std::uint64_t>(reply_.number); break;
    case step::write_script: keep_name(write_script_); break;
    case step::make_script:
      keep_name(make_script_);
      end_predecessor();
      break;
  }
}

void redis_connection::take_facts(const completion_sink* sink) {
  const server_facts facts = server_facts::parse(reply_.text);
  if (facts.is_loading) return break_off(EHOSTDOWN, "it is loading its data");
  const std::string objection = facts.objection();
  if (!objection.empty()) {
    const bool news = session_.note_refusal(true);
    // A server that we have used already: the user has to be told, who is not waiting for open().
    if (news && failures_ > 0) {
      log_line(log_level::error, "far tier %s cannot be used any more: %s", settings_.peer.c_str(), objection.c_str());
    }
    return refuse(objection.c_str());
  }
  static_cast<void>(session_.note_refusal(false));
  const redis_session::view joined = session_.now();
  if (joined.epoch != epoch_) return break_off(ESTALE, "the session has changed meanwhile");
  if (!joined.run_id.is_known()) {
    if (!session_.opened(epoch_, facts)) return break_off(ESTALE, "the session has changed meanwhile");
  } else if (joined.run_id != facts.run_id) {
    predecessor_number_ = 0;  // it has ended with the server's process
    lose_session("the server was restarted, or another one has taken its place", sink);
  }
}

// A write that was given up may lie in the server unread: its connection ends now. The first connection ends nobody,
// but learns whether it would be allowed to.
void redis_connection::end_predecessor() {
  constexpr std::uint64_t nobody = std::numeric_limits<std::int64_t>::max();
  const std::uint64_t ended = predecessor_number_ != 0 ? predecessor_number_ : nobody;
  add_step(step::end_other, {"CLIENT", "KILL", "ID", std::to_string(ended)});
}

void redis_connection::become_ready(std::uint64_t now_ns) {
  phase_ = phase::ready;
  refused_ = false;
  predecessor_number_ = settings_.writes ? own_number_ : 0;
  heard_ns_ = now_ns;
  renew_at_ns_ = now_ns;
  away_since_ns_.store(0, std::memory_order_relaxed);
  if (session_.note_recovery()) log_line(log_level::info, "far tier %s answers again", settings_.peer.c_str());
}

}  // namespace far::backend
