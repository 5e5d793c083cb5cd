#include "preload/report.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/log.h"
#include "base/quiet_write.h"
#include "base/units.h"
#include "control/json_object.h"
#include "platform/wait_for_events.h"

namespace far::preload {
namespace {

using control::json_object;
using control::put_statistics;

constexpr std::int64_t reader_deadline_ns = 2'000'000'000;

// Returns 0 or an errno value. Waits for a slow reader, but not for ever.
int write_all(int file, std::span<const char> text) {
  while (!text.empty()) {
    const ssize_t written = write_quietly(file, text.data(), text.size());
    if (written >= 0) {
      text = text.subspan(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd watched{file, POLLOUT, 0};
      if (platform::wait_for_events({&watched, 1}, reader_deadline_ns) == 0) return ETIMEDOUT;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

std::size_t format_process_json(const job_process& one, std::span<char> text) {
  json_object object(text);
  object.number("pid", static_cast<std::uint64_t>(one.pid));
  object.string("program", one.program);
  object.number("running", one.running ? 1 : 0);
  object.number("elapsed_ns", one.elapsed_ns);
  object.number("user_ns", one.used.user_ns);
  object.number("system_ns", one.used.system_ns);
  object.number("peak_rss_bytes", one.used.peak_rss_bytes);
  put_statistics(object, one.counted);
  return object.finish("");
}

// Returns 0 or an errno value.
int write_report(int file, const run_report& report) {
  std::array<char, stats_json_bytes> text;
  std::size_t length = format_stats_json(report, text);
  if (report.processes == nullptr) return write_all(file, {text.data(), length});
  constexpr std::string_view list = ", \"processes\": [";
  length -= 2;  // "}" and the newline come later
  std::memcpy(text.data() + length, list.data(), list.size());
  int failure = write_all(file, {text.data(), length + list.size()});
  std::size_t written = 0;
  job_process one;
  for (std::size_t i = 0; i < job_slots && failure == 0; ++i) {
    if (!read_process(*report.processes, i, one)) continue;
    std::size_t used = 0;
    if (written++ > 0) text[used++] = ',', text[used++] = ' ';
    used += format_process_json(one, std::span(text).subspan(used));
    failure = write_all(file, {text.data(), used});
  }
  constexpr std::string_view end = "]}\n";
  return failure != 0 ? failure : write_all(file, end);
}

// Returns 0 or an errno value. A leftover of an earlier process with this pid is overwritten.
int replace_file(const char* path, const run_report& report) {
  char temporary[4096 + 32];
  const int length = std::snprintf(temporary, sizeof temporary, "%s.%d.tmp", path, static_cast<int>(getpid()));
  if (length < 0 || length >= static_cast<int>(sizeof temporary)) return ENAMETOOLONG;
  unlink(temporary);
  const int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return errno;
  int failure = write_report(file, report);
  if (close(file) != 0 && failure == 0) failure = errno;
  if (failure == 0 && rename(temporary, path) != 0) failure = errno;
  if (failure != 0) unlink(temporary);
  return failure;
}

// Returns 0 or an errno value. A pipe that nobody reads fails with ENXIO, and does not block the program.
int write_through(const char* path, const run_report& report) {
  const int file = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (file < 0) return errno;
  const int failure = write_report(file, report);
  close(file);
  return failure;
}

}  // namespace

void log_exit_line(const engine::statistics& counted, std::uint64_t processes, std::uint64_t running) noexcept {
  // These strings are short enough to live inside std::string, without an allocation.
  const std::string peak = format_size(counted.peak_local_bytes);
  const std::string budget = format_size(counted.budget_bytes);
  const std::string remote = format_size(counted.peak_far_bytes);
  const std::string stored = format_size(counted.peak_far_stored_bytes);
  const std::string waited = format_duration(counted.wait_ns);
  const bool is_smaller = counted.peak_far_stored_bytes < counted.peak_far_bytes;
  char tree[96] = "";
  if (processes > 1) {
    const int used = std::snprintf(tree, sizeof tree, "; %" PRIu64 " processes", processes);
    if (running > 0) {
      std::snprintf(tree + used, sizeof tree - static_cast<std::size_t>(used), ", %" PRIu64 " still running", running);
    }
  }
  log_line(log_level::info,
           "peak local %s of %s, far %s%s%s, %" PRIu64 " misses, %" PRIu64 " prefetch hits, waited %s%s", peak.c_str(),
           budget.c_str(), remote.c_str(), is_smaller ? " stored in " : "", is_smaller ? stored.c_str() : "",
           counted.misses, counted.prefetch_hits, waited.c_str(), tree);
}

std::size_t format_stats_json(const run_report& report, std::span<char> text) noexcept {
  json_object object(text);
  put_statistics(object, report.counted);
  object.number("page_bytes", page_bytes);
  object.number("pid", static_cast<std::uint64_t>(report.pid));
  object.string("program", report.program);
  object.number("elapsed_ns", report.elapsed_ns);
  object.number("user_ns", report.used.user_ns);
  object.number("system_ns", report.used.system_ns);
  object.number("peak_rss_bytes", report.used.peak_rss_bytes);
  object.string("far", report.far_uri);
  object.string("fault_mode", report.fault_mode);
  object.string("policy", report.policy);
  if (report.processes != nullptr) {
    object.number("process_count", report.totals.processes);
    object.number("processes_running", report.totals.running);
    object.number("processes_unlisted", report.totals.unlisted);
  }
  return object.finish("\n");
}

result<void> write_stats_json(const char* path, const run_report& report) {
  struct stat existing{};
  // Renaming over a symbolic link or a device would replace it: /dev/stdout and /dev/null must survive.
  const bool special = lstat(path, &existing) == 0 && !S_ISREG(existing.st_mode);
  const int failure = special ? write_through(path, report) : replace_file(path, report);
  if (failure == 0) return {};
  return error{std::string("cannot write the statistics to ") + path + ": " + std::strerror(failure) +
                   "; choose another file with --stats-json",
               failure};
}

}  // namespace far::preload
