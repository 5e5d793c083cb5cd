#include "server/event_log.h"

#include <unistd.h>

#include <atomic>
#include <utility>

#include "base/mutex.h"

namespace far::server {
namespace {

constexpr std::uint64_t lines_of_second = 20;

struct limiter {
  mutex lock;
  std::uint64_t second FAR_GUARDED_BY(lock) = 0;
  std::uint64_t lines FAR_GUARDED_BY(lock) = 0;
  std::uint64_t left_out FAR_GUARDED_BY(lock) = 0;
};

std::atomic<log_level> least_shown{log_level::info};

limiter& the_limiter() {
  static limiter only;
  return only;
}

}  // namespace

std::optional<log_level> log_level_named(std::string_view name) {
  if (name == "warning") return log_level::warning;
  if (name == "info") return log_level::info;
  if (name == "debug") return log_level::debug;
  return std::nullopt;
}

void set_log_level(log_level least) {
  least_shown.store(least);
}

bool is_logged(log_level how) {
  return how <= least_shown.load(std::memory_order_relaxed);
}

void log_event(const std::string& text, log_level how) {
  if (!is_logged(how)) return;
  const std::string line = "farheapd: " + text + "\n";
  // One call, so that lines of several threads do not mix. A failure is ignored, since there is nowhere else to report
  // it.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

// The lock is not held while writing: a terminal or a pipe that takes no more would stop every thread that has
// something to log. Lines of two threads may therefore swap places.
void log_limited(const std::string& text, std::uint64_t now_ns, log_level how) {
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
  log_event(text, how);
}

}  // namespace far::server
