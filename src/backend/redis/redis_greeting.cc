#include "backend/redis/redis_greeting.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "backend/redis/command_writer.h"

namespace far::backend {
namespace {

// Writes to a string only while it exists, so that one that was deleted does not come back full of zeros. -1: it does
// not exist.
constexpr std::string_view write_script_text =
    "if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end "
    "return redis.call('SETRANGE', KEYS[1], ARGV[1], ARGV[2])";

// Makes a string of zeros that lives for so many milliseconds.
constexpr std::string_view make_script_text =
    "redis.call('SETRANGE', KEYS[1], ARGV[1] - 1, '\\0') "
    "return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

bool is_temporary(std::string_view failure) {
  for (const std::string_view begin :
       {"LOADING", "MASTERDOWN", "BUSY", "CLUSTERDOWN", "MOVED", "ERR max number of clients"}) {
    if (failure.starts_with(begin)) return true;
  }
  return false;
}

// What may be shown of a failure of AUTH. Where that is no command (it has another name, or a proxy answers), the reply
// repeats its arguments, and the password among them.
std::string_view without_password(std::string_view failure) {
  for (const std::string_view harmless :
       {"WRONGPASS ", "ERR AUTH <password> called without ", "ERR Client sent AUTH, "}) {
    if (failure.starts_with(harmless)) return failure;
  }
  return failure.substr(0, failure.find(' '));
}

}  // namespace

void redis_greeting::add_step(step added, std::initializer_list<std::string_view> arguments) {
  std::size_t most_bytes = 32;
  for (const std::string_view argument : arguments) most_bytes += argument.size() + 32;
  const std::size_t before = text_.size();
  text_.resize(before + most_bytes);
  command_writer writer({text_.data() + before, most_bytes});
  writer.begin(arguments.size());
  for (const std::string_view argument : arguments) writer.text(argument);
  text_.resize(before + writer.size());
  steps_[step_count_++] = added;
}

void redis_greeting::begin(const redis_settings& settings, std::string_view key) {
  text_.clear();
  step_count_ = steps_done_ = 0;
  if (!settings.password.empty() && settings.user.empty()) add_step(step::authenticate, {"AUTH", settings.password});
  if (!settings.user.empty()) add_step(step::authenticate, {"AUTH", settings.user, settings.password});
  if (settings.database != 0) add_step(step::select, {"SELECT", std::to_string(settings.database)});
  if (settings.cluster != nullptr && !settings.asks) add_step(step::nodes, {"CLUSTER", "NODES"});
  add_step(step::facts, {"INFO"});
  // A node that cannot serve the hash slot now says so here, and not to the first request.
  if (settings.cluster != nullptr && !settings.asks && !key.empty()) {
    add_step(step::hash_slot, {"GETRANGE", key, "0", "0"});
  }
  if (!settings.writes) return;
  add_step(step::number, {"CLIENT", "ID"});
  add_step(step::write_script, {"SCRIPT", "LOAD", write_script_text});
  add_step(step::make_script, {"SCRIPT", "LOAD", make_script_text});
}

redis_greeting::outcome redis_greeting::take(const redis_reply& reply) {
  const step taken = steps_[steps_done_++];
  const bool is_moving = taken == step::hash_slot && reply.text.starts_with("ASK ");
  if (reply.is == redis_reply::kind::failure && !is_moving) {
    if (is_temporary(reply.text)) return outcome::unavailable;
    const char* todo = "; check 'user', 'password-file' and 'db'";
    if (reply.text.starts_with("NOPERM")) todo = "; docs/redis.md lists the commands that its user needs";
    if (reply.text.find("cluster support disabled") != std::string_view::npos) {
      todo = "; write redis: instead of redis+cluster:";
    }
    const std::string_view shown = taken == step::authenticate ? without_password(reply.text) : reply.text;
    const char* const omission =
        shown.size() < reply.text.size() ? " to AUTH, and words that may hold the password" : "";
    const int length = static_cast<int>(std::min<std::size_t>(shown.size(), 250));
    static_cast<void>(std::snprintf(explanation_.data(), explanation_.size(), "it answers: %.*s%s%s", length,
                                    shown.data(), omission, todo));
    return outcome::refused;
  }
  switch (taken) {
    case step::authenticate:
    case step::select:
    case step::nodes:
    case step::hash_slot:
    case step::end_other: break;
    case step::facts: return outcome::facts;
    case step::number: own_number_ = static_cast<std::uint64_t>(reply.number); break;
    case step::write_script: keep_name(reply, write_script_); break;
    case step::make_script:
      keep_name(reply, make_script_);
      end_predecessor();
      break;
  }
  return outcome::more;
}

void redis_greeting::keep_name(const redis_reply& reply, script_name& into) {
  const std::size_t length = std::min(reply.text.size(), into.size() - 1);
  std::copy_n(reply.text.data(), length, into.data());
  into[length] = '\0';
}

// The server may hold a write that was given up, so its connection is ended first. The first connection ends none, but
// finds out whether it would be allowed to.
void redis_greeting::end_predecessor() {
  constexpr std::uint64_t nobody = std::numeric_limits<std::int64_t>::max();
  const std::uint64_t last = writers_->number_in(process_);
  const std::uint64_t ended = last != 0 ? last : nobody;
  add_step(step::end_other, {"CLIENT", "KILL", "ID", std::to_string(ended)});
}

}  // namespace far::backend
