#include "server/event_log.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/thread_mutex.h"

namespace far::server {
namespace {

constexpr std::uint64_t lines_of_second = 20;

// With the line that tells of lost ones, no more than a pipe takes at once when it takes anything (PIPE_BUF).
constexpr std::size_t most_line_bytes = 3840;

struct limiter {
  thread_mutex lock;
  std::uint64_t second FAR_GUARDED_BY(lock) = 0;
  std::uint64_t lines FAR_GUARDED_BY(lock) = 0;
  std::uint64_t left_out FAR_GUARDED_BY(lock) = 0;
};

std::atomic<log_level> least_shown{log_level::info};
std::atomic<log_format> line_format{log_format::text};

limiter& the_limiter() {
  static limiter only;
  return only;
}

struct output {
  thread_mutex lock;  // held while writing, which never waits
  std::uint64_t lost FAR_GUARDED_BY(lock) = 0;
};

output& the_output() {
  static output only;
  return only;
}

// False: standard error takes nothing now. A pipe or a terminal that can be written to takes a short line at once; a
// socket, such as that of a service manager, can be asked not to wait. The mode of the descriptor is left alone,
// because other processes share it.
bool try_write(const std::string& line) {
  const ssize_t sent = send(STDERR_FILENO, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0 || errno != ENOTSOCK) return sent == static_cast<ssize_t>(line.size());
  pollfd watched{STDERR_FILENO, POLLOUT, 0};
  if (poll(&watched, 1, 0) != 1 || (watched.revents & POLLOUT) == 0) return false;
  return write(STDERR_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

const char* name_of(log_level how) {
  switch (how) {
    case log_level::none: break;
    case log_level::warning: return "warning";
    case log_level::info: return "info";
    case log_level::debug: return "debug";
  }
  return "";
}

// Peers' addresses, names of tenants and paths hold nothing that needs more than this.
std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      result += '\\';
      result += letter;
    } else if (code < 0x20 || code == 0x7f) {
      std::array<char, 8> escaped{};
      static_cast<void>(std::snprintf(escaped.data(), escaped.size(), "\\u%04x", code));
      result += escaped.data();
    } else {
      result += letter;
    }
  }
  return result + '"';
}

std::string time_text(std::int64_t since_epoch_ms) {
  const std::time_t seconds = since_epoch_ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 40> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  static_cast<void>(
      std::snprintf(text.data() + length, text.size() - length, ".%03dZ", static_cast<int>(since_epoch_ms % 1000)));
  return text.data();
}

}  // namespace

std::optional<log_level> log_level_named(std::string_view name) {
  if (name == "warning") return log_level::warning;
  if (name == "info") return log_level::info;
  if (name == "debug") return log_level::debug;
  return std::nullopt;
}

std::optional<log_format> log_format_named(std::string_view name) {
  if (name == "text") return log_format::text;
  if (name == "json") return log_format::json;
  return std::nullopt;
}

void set_log_level(log_level least) {
  least_shown.store(least);
}

void set_log_format(log_format how) {
  line_format.store(how);
}

bool is_logged(log_level how) {
  return how <= least_shown.load(std::memory_order_relaxed);
}

std::string event_line(log_format format, std::string_view text, log_level how, const event_party& whom,
                       std::int64_t since_epoch_ms) {
  std::string line;
  if (format == log_format::text) {
    line = "farheapd: " + std::string(text);
    if (line.size() >= most_line_bytes) line.resize(most_line_bytes - 1);
    return line + "\n";
  }
  // What is cut off must leave JSON behind.
  line = "{\"time\":" + quoted(time_text(since_epoch_ms)) + ",\"severity\":" + quoted(name_of(how)) +
         ",\"message\":" + quoted(text.substr(0, most_line_bytes / 8));
  for (const auto& [name, value] : {std::pair{"peer", &whom.peer}, std::pair{"tenant", &whom.tenant},
                                    std::pair{"session", &whom.session}, std::pair{"reason", &whom.reason}}) {
    if (!value->empty()) line += ",\"" + std::string(name) + "\":" + quoted(*value);
  }
  return line + "}\n";
}

void log_event(const std::string& text, log_level how, const event_party& whom) {
  if (!is_logged(how)) return;
  const log_format format = line_format.load();
  const std::int64_t time_ms = now_ms();
  output& to = the_output();
  const lock_guard guard(to.lock);
  std::string lines;
  if (to.lost > 0) {
    const std::string gap = std::to_string(to.lost) + " lines were lost: standard error took no more";
    lines = event_line(format, gap, log_level::warning, {}, time_ms);
  }
  lines += event_line(format, text, how, whom, time_ms);
  to.lost = try_write(lines) ? 0 : to.lost + 1;
}

void log_limited(const std::string& text, std::uint64_t now_ns, log_level how, const event_party& whom) {
  if (!is_logged(how)) return;
  limiter& limit = the_limiter();
  std::uint64_t left_out = 0;
  {
    const lock_guard guard(limit.lock);
    const std::uint64_t second = now_ns / 1'000'000'000;
    if (second != limit.second) {
      limit.second = second;
      limit.lines = 0;
      left_out = std::exchange(limit.left_out, 0);
    }
    if (++limit.lines > lines_of_second) {
      ++limit.left_out;
      return;
    }
  }
  if (left_out > 0) {
    log_event(std::to_string(left_out) + " more lines like the ones before were left out", log_level::warning);
  }
  log_event(text, how, whom);
}

}  // namespace far::server
