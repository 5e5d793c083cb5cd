#include "preload/report.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/log.h"
#include "base/units.h"

namespace far::preload {
namespace {

using engine::statistics;

constexpr std::array<statistic_field, 21> fields{{
    {"budget_bytes", &statistics::budget_bytes},
    {"local_bytes", &statistics::local_bytes},
    {"peak_local_bytes", &statistics::peak_local_bytes},
    {"far_bytes", &statistics::far_bytes},
    {"peak_far_bytes", &statistics::peak_far_bytes},
    {"misses", &statistics::misses},
    {"waits", &statistics::waits},
    {"rescues", &statistics::rescues},
    {"zero_fills", &statistics::zero_fills},
    {"write_faults", &statistics::write_faults},
    {"hinted_misses", &statistics::hinted_misses},
    {"wait_ns", &statistics::wait_ns},
    {"prefetched_pages", &statistics::prefetched_pages},
    {"prefetch_hits", &statistics::prefetch_hits},
    {"fetched_pages", &statistics::fetched_pages},
    {"evicted_pages", &statistics::evicted_pages},
    {"clean_evictions", &statistics::clean_evictions},
    {"written_pages", &statistics::written_pages},
    {"direct_reclaims", &statistics::direct_reclaims},
    {"backend_errors", &statistics::backend_errors},
    {"over_budget_pages", &statistics::over_budget_pages},
}};
static_assert(sizeof(statistics) == fields.size() * sizeof(std::uint64_t), "a statistic has no entry here");
// A key, 20 digits, and the punctuation.
static_assert(fields.size() * 64 <= statistics_json_bytes);

// How many bytes of `text` form one valid UTF-8 character; 0 when they do not.
std::size_t utf8_length(const unsigned char* text) {
  if (text[0] < 0x80) return 1;
  const std::size_t length = text[0] >= 0xc2 && text[0] <= 0xdf ? 2 : (text[0] & 0xf0) == 0xe0 ? 3 : 4;
  if (text[0] < 0xc2 || text[0] > 0xf4) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  // Longer than needed, half of a surrogate pair, or beyond the last character.
  if (text[0] == 0xe0 && text[1] < 0xa0) return 0;
  if (text[0] == 0xed && text[1] > 0x9f) return 0;
  if (text[0] == 0xf0 && text[1] < 0x90) return 0;
  if (text[0] == 0xf4 && text[1] > 0x8f) return 0;
  return length;
}

// A flat JSON object, built in a buffer of fixed size.
class json_object {
 public:
  explicit json_object(std::span<char> text) : text_(text) { put("{"); }

  void number(const char* key, std::uint64_t value) {
    begin(key);
    char digits[24];
    std::snprintf(digits, sizeof digits, "%" PRIu64, value);
    put(digits);
  }

  void string(const char* key, const char* value) {
    begin(key);
    put("\"");
    const auto* next = reinterpret_cast<const unsigned char*>(value);
    const auto* const limit = next + longest_string;
    while (*next != 0 && next < limit) next += put_character(next);
    put("\"");
  }

  // Ends the object; returns the length.
  [[nodiscard]] std::size_t finish(const char* end) {
    put("}");
    put(end);
    return used_;
  }

 private:
  static constexpr std::size_t longest_string = 1000;

  void begin(const char* key) {
    put(used_ == 1 ? "\"" : ", \"");
    put(key);
    put("\": ");
  }

  // Writes one character, escaped where JSON asks for it; returns how many bytes of the source it took.
  std::size_t put_character(const unsigned char* source) {
    const std::size_t length = utf8_length(source);
    if (length == 0) return put("\\ufffd"), 1;
    char escaped[8];
    if (*source == '"' || *source == '\\') {
      std::snprintf(escaped, sizeof escaped, "\\%c", *source);
    } else if (*source < 0x20 || *source == 0x7f) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", *source);
    } else {
      std::memcpy(escaped, source, length);
      escaped[length] = 0;
    }
    put(escaped);
    return length;
  }

  void put(const char* part) {
    const std::size_t length = std::strlen(part);
    FAR_CHECK(used_ + length <= text_.size(), "the JSON buffer is large enough for any report");
    std::memcpy(text_.data() + used_, part, length);
    used_ += length;
  }

  std::span<char> text_;
  std::size_t used_ = 0;
};

void put_statistics(json_object& object, const statistics& counted) {
  for (const statistic_field& field : fields) object.number(field.name, counted.*field.member);
}

std::uint64_t to_ns(const timeval& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_usec) * 1'000u;
}

// VmHWM counts this program alone; ru_maxrss would also count what ran in this process before exec.
std::uint64_t read_peak_rss_bytes(std::uint64_t otherwise) {
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return otherwise;
  char text[4096];
  const ssize_t got = read(file, text, sizeof text - 1);
  close(file);
  if (got <= 0) return otherwise;
  text[got] = 0;
  const char* line = std::strstr(text, "VmHWM:");
  return line == nullptr ? otherwise : std::strtoull(line + std::strlen("VmHWM:"), nullptr, 10) * kib;
}

// Returns 0 or an errno value.
int write_all(int file, std::span<const char> text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text = text.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

// Returns 0 or an errno value. A leftover of an earlier process with this pid is overwritten.
int replace_file(const char* path, std::span<const char> text) {
  char temporary[4096 + 32];
  const int length = std::snprintf(temporary, sizeof temporary, "%s.%d.tmp", path, static_cast<int>(getpid()));
  if (length < 0 || length >= static_cast<int>(sizeof temporary)) return ENAMETOOLONG;
  unlink(temporary);
  const int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return errno;
  int failure = write_all(file, text);
  if (close(file) != 0 && failure == 0) failure = errno;
  if (failure == 0 && rename(temporary, path) != 0) failure = errno;
  if (failure != 0) unlink(temporary);
  return failure;
}

// Returns 0 or an errno value. A pipe that nobody reads fails with ENXIO and does not hold the program.
int write_through(const char* path, std::span<const char> text) {
  const int file = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (file < 0) return errno;
  const int failure = write_all(file, text);
  close(file);
  return failure;
}

}  // namespace

std::span<const statistic_field> statistic_fields() noexcept {
  return fields;
}

process_usage read_process_usage() noexcept {
  process_usage used;
  rusage counted{};
  if (getrusage(RUSAGE_SELF, &counted) == 0) {
    used.user_ns = to_ns(counted.ru_utime);
    used.system_ns = to_ns(counted.ru_stime);
  }
  used.peak_rss_bytes = read_peak_rss_bytes(static_cast<std::uint64_t>(counted.ru_maxrss) * kib);
  return used;
}

void log_exit_line(const engine::statistics& counted) noexcept {
  // These strings are short enough to live inside std::string, without an allocation.
  const std::string peak = format_size(counted.peak_local_bytes);
  const std::string budget = format_size(counted.budget_bytes);
  const std::string remote = format_size(counted.peak_far_bytes);
  const std::string waited = format_duration(counted.wait_ns);
  log_line(log_level::info, "peak local %s of %s, far %s, %" PRIu64 " misses, %" PRIu64 " prefetch hits, waited %s",
           peak.c_str(), budget.c_str(), remote.c_str(), counted.misses, counted.prefetch_hits, waited.c_str());
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
  return object.finish("\n");
}

std::size_t format_statistics_json(const engine::statistics& counted, std::span<char> text) noexcept {
  json_object object(text);
  put_statistics(object, counted);
  return object.finish("");
}

result<void> write_stats_json(const char* path, const run_report& report) {
  std::array<char, stats_json_bytes> text;
  const std::span<const char> written(text.data(), format_stats_json(report, text));
  struct stat existing{};
  // Renaming over a symbolic link or a device would replace it: /dev/stdout and /dev/null must survive.
  const bool special = lstat(path, &existing) == 0 && !S_ISREG(existing.st_mode);
  const int failure = special ? write_through(path, written) : replace_file(path, written);
  if (failure == 0) return {};
  return error{std::string("cannot write the statistics to ") + path + ": " + std::strerror(failure) +
                   "; choose another file with --stats-json",
               failure};
}

}  // namespace far::preload
