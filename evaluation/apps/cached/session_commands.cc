// The commands of a session, but get and stats.
#include <fmt/format.h>

#include "session.h"

namespace cached {
namespace {

struct storing_command {
  std::string_view name;
  store_mode mode;
  std::size_t words;  // without noreply
};

constexpr storing_command storing_commands[] = {
    {"set", store_mode::set, 5},       {"add", store_mode::add, 5},         {"replace", store_mode::replace, 5},
    {"append", store_mode::append, 5}, {"prepend", store_mode::prepend, 5}, {"cas", store_mode::cas, 6},
};

}  // namespace

void session::execute_words(const command_line& words) {
  const std::string_view name = words.word(0);
  const auto has = [&](std::size_t least, std::size_t most) {
    const bool good = words.count >= least && words.count <= most;
    if (!good) reply("ERROR");
    return good;
  };
  for (const storing_command& command : storing_commands) {
    if (command.name != name) continue;
    if (has(command.words, command.words + 1)) begin_store(words, command.mode);
    return;
  }
  if (name == "delete") {
    if (has(2, 4)) execute_delete(words);
  } else if (name == "incr" || name == "decr") {
    if (has(3, 4)) execute_count(words, name == "incr");
  } else if (name == "touch") {
    if (has(3, 4)) execute_touch(words);
  } else if (name == "flush_all") {
    if (has(1, 3)) execute_flush(words);
  } else if (name == "verbosity") {
    if (has(2, 3)) execute_verbosity(words);
  } else if (name == "stats") {
    execute_stats(words);
  } else if (name == "version") {
    reply(fmt::format("VERSION {}", version_text));
  } else if (name == "quit") {
    stop();
  } else {
    reply("ERROR");
  }
}

void session::begin_store(const command_line& words, store_mode mode) {
  noreply_ = words.ends_with_noreply();
  const std::string_view key = words.word(1);
  std::uint32_t flags = 0;
  std::int32_t expires = 0;
  std::int32_t bytes = 0;
  cas_ = 0;
  if (key.size() > key_limit || !parse(words.word(2).data(), flags) || !parse(words.word(3).data(), expires) ||
      !parse(words.word(4).data(), bytes) || (mode == store_mode::cas && !parse(words.word(5).data(), cas_)) ||
      bytes < 0 || bytes > INT32_MAX - 2) {
    return reply(bad_format);
  }
  const auto value_bytes = static_cast<std::size_t>(bytes);
  if (!fits(key.size(), value_bytes)) {
    items_.seen.too_large.fetch_add(1, std::memory_order_relaxed);
    reply("SERVER_ERROR object too large for cache");
  } else if (storing_ = make_item(key, flags, items_.clock().expiry(expires), value_bytes); storing_ == nullptr) {
    reply_always("SERVER_ERROR out of memory storing object");
  } else {
    mode_ = mode;
    filled_ = 0;
    state_ = state::value;
    return;
  }
  // A value that cannot be stored is read all the same, and an older one must not pass for it.
  swallow_ = value_bytes + 2;
  state_ = state::swallow;
  if (mode == store_mode::set) items_.drop(key);
}

void session::finish_store() {
  if (storing_->line().substr(storing_->value_bytes) != "\r\n") {
    storing_.reset();
    return reply("CLIENT_ERROR bad data chunk");
  }
  switch (items_.put(std::move(storing_), mode_, cas_)) {
    case store_outcome::stored: return reply("STORED");
    case store_outcome::not_stored: return reply("NOT_STORED");
    case store_outcome::exists: return reply("EXISTS");
    case store_outcome::not_found: return reply("NOT_FOUND");
  }
}

void session::execute_delete(const command_line& words) {
  if (words.count > 2) {
    // A time of 0 was once allowed there; clients still send it.
    const bool zero = words.word(2) == "0";
    noreply_ = words.ends_with_noreply();
    if (!(words.count == 3 && (zero || noreply_)) && !(words.count == 4 && zero && noreply_)) {
      return reply("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]");
    }
  }
  if (words.word(1).size() > key_limit) return reply(bad_format);
  reply(items_.remove(words.word(1)) ? "DELETED" : "NOT_FOUND");
}

void session::execute_count(const command_line& words, bool up) {
  noreply_ = words.ends_with_noreply();
  std::uint64_t delta = 0;
  if (words.word(1).size() > key_limit) return reply(bad_format);
  if (!parse(words.word(2).data(), delta)) return reply("CLIENT_ERROR invalid numeric delta argument");
  std::uint64_t result = 0;
  switch (items_.count(words.word(1), up, delta, result)) {
    case count_outcome::counted: return reply(fmt::format_int(result).c_str());
    case count_outcome::not_found: return reply("NOT_FOUND");
    case count_outcome::not_a_number: return reply("CLIENT_ERROR cannot increment or decrement non-numeric value");
    case count_outcome::no_memory: return reply_always("SERVER_ERROR out of memory");
  }
}

void session::execute_touch(const command_line& words) {
  noreply_ = words.ends_with_noreply();
  std::int32_t expires = 0;
  if (words.word(1).size() > key_limit) return reply(bad_format);
  if (!parse(words.word(2).data(), expires)) return reply("CLIENT_ERROR invalid exptime argument");
  reply(items_.touch(words.word(1), items_.clock().expiry(expires)) ? "TOUCHED" : "NOT_FOUND");
}

void session::execute_flush(const command_line& words) {
  noreply_ = words.ends_with_noreply();
  std::int32_t delay = 0;
  if (words.count != (noreply_ ? 2 : 1) && !parse(words.word(1).data(), delay)) {
    return reply("CLIENT_ERROR invalid exptime argument");
  }
  // Not the second itself: values that are stored within it stay.
  const std::uint32_t at = delay == 0 ? items_.clock().now() : items_.clock().expiry(delay);
  items_.flush(at - 1);
  reply("OK");
}

void session::execute_verbosity(const command_line& words) {
  noreply_ = words.ends_with_noreply();
  std::uint32_t level = 0;
  // Nothing is logged, so there is nothing to set.
  reply(parse(words.word(1).data(), level) ? "OK" : bad_format);
}

}  // namespace cached
