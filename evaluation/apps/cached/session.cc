#include "session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

namespace cached {

std::span<char> session::room() {
  if (state_ == state::value && waiting() == 0) {
    return {storing_->value_begin() + filled_, storing_->value_bytes + 2 - filled_};
  }
  if (begin_ > 0) {
    std::memmove(input_.data(), input_.data() + begin_, waiting());
    end_ -= begin_;
    begin_ = 0;
  }
  // Back to the usual size after a long line.
  if (end_ == 0 && input_.size() > first_input_bytes) std::vector<char>().swap(input_);
  // One byte stays free behind the input: a line is ended by a NUL there.
  if (end_ + 1 >= input_.size()) input_.resize(std::max(first_input_bytes, input_.size() * 2));
  return {input_.data() + end_, input_.size() - 1 - end_};
}

void session::received(std::size_t count) {
  if (state_ == state::value && waiting() == 0) {
    filled_ += count;
  } else {
    end_ += count;
  }
}

void session::sent(std::size_t count) {
  sent_ += count;
  if (sent_ < output_.size()) return;
  sent_ = 0;
  if (output_.capacity() > 2 * output_enough) {
    std::string().swap(output_);
  } else {
    output_.clear();
  }
}

void session::process() {
  held_up_ = false;
  while (!closing_) {
    if (output().size() >= output_enough) {
      held_up_ = true;
      return;
    }
    if (!step()) return;
  }
}

// False when it needs more input. A command that fails, because an item is lost or there is no memory, ends there.
bool session::step() try {
  switch (state_) {
    case state::command: return take_line();
    case state::value: return take_value();
    case state::swallow: return take_swallowed();
    case state::keys: return take_key();
  }
  return false;
} catch (const std::exception& error) {
  state_ = state::command;
  reply_always(fmt::format("SERVER_ERROR {}", error.what()));
  return true;
}

bool session::take_line() {
  char* const line = input_.data() + begin_;
  auto* const end =
      waiting() > scanned_ ? static_cast<char*>(std::memchr(line + scanned_, '\n', waiting() - scanned_)) : nullptr;
  if (end == nullptr) {
    scanned_ = waiting();
    check_unfinished_line();
    return false;
  }
  scanned_ = 0;
  begin_ += static_cast<std::size_t>(end - line) + 1;
  // A lone "\r" is a word, as it is for memcached; either is an error.
  *(end - line > 1 && end[-1] == '\r' ? end - 1 : end) = '\0';
  execute(line);
  return true;
}

// Only a get of many keys may be long. A client that sends another long line does not speak this protocol.
void session::check_unfinished_line() {
  if (waiting() <= longest_line_but_get) return;
  const std::string_view all(input_.data() + begin_, waiting());
  const std::string_view line = all.substr(std::min(all.find_first_not_of(' '), all.size()));
  const bool is_get = all.size() - line.size() <= 100 && (line.starts_with("get ") || line.starts_with("gets "));
  if (!is_get || waiting() >= longest_line) stop();
}

bool session::take_value() {
  const std::size_t wanted = storing_->value_bytes + std::size_t{2};
  if (filled_ < wanted && waiting() > 0) {
    const std::size_t count = std::min(wanted - filled_, waiting());
    std::memcpy(storing_->value_begin() + filled_, input_.data() + begin_, count);
    filled_ += count;
    begin_ += count;
  }
  if (filled_ < wanted) return false;
  state_ = state::command;
  finish_store();
  return true;
}

bool session::take_swallowed() {
  const std::size_t count = std::min(swallow_, waiting());
  swallow_ -= count;
  begin_ += count;
  if (swallow_ > 0) return false;
  state_ = state::command;
  return true;
}

void session::execute(char* line) {
  noreply_ = false;
  const char* const first = line + std::strspn(line, " ");
  const std::string_view word(first, std::strcspn(first, " "));
  if (word == "get" || word == "gets") {
    begin_get(word == "gets", line + (first - line) + word.size());
  } else {
    execute_words(command_line(line));
  }
}

void session::reply(std::string_view text) {
  if (!noreply_) reply_always(text);
}

void session::reply_always(std::string_view text) {
  output_.append(text);
  output_.append("\r\n");
}

void session::begin_get(bool with_cas, char* line) {
  std::size_t keys = 0;
  for (const char* at = line + std::strspn(line, " "); *at != '\0'; ++keys) {
    const std::size_t bytes = std::strcspn(at, " ");
    // Before anything is answered: one bad key spoils the whole command.
    if (bytes > key_limit) return reply(bad_format);
    at += bytes;
    at += std::strspn(at, " ");
  }
  if (keys == 0) return reply("ERROR");
  with_cas_ = with_cas;
  keys_ = line;
  state_ = state::keys;
}

// One key a step, so that replies do not pile up. Input is not moved meanwhile: see room().
bool session::take_key() {
  keys_ += std::strspn(keys_, " ");
  if (*keys_ == '\0') {
    state_ = state::command;
    reply("END");
    return true;
  }
  const std::string_view key(keys_, std::strcspn(keys_, " "));
  keys_ += key.size();
  items_.get(key, [&](const found_item& found) {
    fmt::format_to(std::back_inserter(output_), "VALUE {} {} {}", key, found.flags, found.line.size() - 2);
    if (with_cas_) fmt::format_to(std::back_inserter(output_), " {}", found.cas);
    output_.append("\r\n");
    output_.append(found.line);
  });
  return true;
}

}  // namespace cached
