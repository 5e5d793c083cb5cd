#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/quiet_write.h"

namespace far {
namespace {

std::atomic<log_level> maximum_level{log_level::info};
std::atomic<bool> is_log_open{true};

const char* prefix(log_level level) {
  switch (level) {
    case log_level::error: return "farheap: error: ";
    case log_level::warning: return "farheap: warning: ";
    case log_level::info:
    case log_level::verbose: return "farheap: ";
  }
  return "farheap: ";
}

}  // namespace

void set_log_level(log_level level) noexcept {
  maximum_level.store(level, std::memory_order_relaxed);
}

bool log_enabled(log_level level) noexcept {
  return level <= maximum_level.load(std::memory_order_relaxed);
}

void set_log_open(bool is_open) noexcept {
  is_log_open.store(is_open, std::memory_order_relaxed);
}

void log_line(log_level level, const char* format, ...) noexcept {
  if (!log_enabled(level) || !is_log_open.load(std::memory_order_relaxed)) return;
  const int saved_errno = errno;
  char line[1024];
  const int head = std::snprintf(line, sizeof line, "%s", prefix(level));
  std::va_list arguments;
  va_start(arguments, format);
  const int body = std::vsnprintf(line + head, sizeof line - head, format, arguments);
  va_end(arguments);
  int length = head + (body > 0 ? body : 0);
  if (length > static_cast<int>(sizeof line) - 1) length = sizeof line - 1;
  line[length] = '\n';
  // A failure is ignored, since there is nowhere else to report it.
  static_cast<void>(write_quietly(STDERR_FILENO, line, static_cast<std::size_t>(length) + 1));
  errno = saved_errno;
}

}  // namespace far
