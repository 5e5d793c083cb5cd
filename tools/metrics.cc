#include "metrics.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "control/json_object.h"
#include "control/statistics_json.h"
#include "message.h"
#include "program.h"
#include "server/metrics_server.h"

namespace far::tools {
namespace {

using engine::statistics;

// The others only grow.
constexpr std::array gauges{
    &statistics::budget_bytes,      &statistics::local_bytes,           &statistics::peak_local_bytes,
    &statistics::far_bytes,         &statistics::peak_far_bytes,        &statistics::far_stored_bytes,
    &statistics::servers,           &statistics::peak_far_stored_bytes, &statistics::away_servers,
    &statistics::over_budget_pages, &statistics::lacking_copies};

// Bytes that are not UTF-8 become U+FFFD: for one of them Prometheus would refuse the text of all programs.
std::string escaped(const char* label) {
  std::string text;
  while (*label != 0) {
    const std::size_t length = control::utf8_length(reinterpret_cast<const unsigned char*>(label));
    if (*label == '\\' || *label == '"') text += '\\';
    if (*label == '\n') {
      text += "\\n";
    } else if (length == 0) {
      text += "\xef\xbf\xbd";
    } else {
      text.append(label, length);
    }
    label += std::max<std::size_t>(length, 1);
  }
  return text;
}

// "wait_ns" -> "farheap_wait_seconds_total".
struct metric {
  std::string name;
  const char* type;
  bool is_time;
};
metric metric_of(const control::statistic_field& field) {
  constexpr std::string_view nanoseconds = "_ns";
  std::string name = std::string("farheap_") + field.name;
  const bool is_time = name.ends_with(nanoseconds);
  if (is_time) name.replace(name.size() - nanoseconds.size(), nanoseconds.size(), "_seconds");
  const bool is_gauge = std::ranges::find(gauges, field.member) != gauges.end();
  return {is_gauge ? name : name + "_total", is_gauge ? "gauge" : "counter", is_time};
}

std::string labels_of(const job_snapshot& job, const preload::job_process& one) {
  return fmt::format("pid=\"{}\",program=\"{}\",job=\"{}\"", one.pid, escaped(one.program), job.processes.front().pid);
}

class running_programs final : public server::metrics_source {
 public:
  std::string metrics(std::uint64_t /*now_ns*/) override { return prometheus_text(take_all_snapshots()); }
};

int serve(const metrics_options& chosen) {
  const result<server::address> at = server::parse_address(chosen.listen);
  if (!at) return fail(exit_usage, "--listen: " + at.error().message);
  server::token_book tokens;
  if (!chosen.token_file.empty()) {
    result<server::token_book> read = server::token_book::read(chosen.token_file);
    if (!read) return fail(exit_usage, "--token-file: " + read.error().message);
    if (read.value().tokens_of("default").empty()) {
      return fail(exit_usage, "--token-file: it has only tokens with a tenant; write a line with the token alone");
    }
    tokens = std::move(read).value();
  }
  if (!at.value().is_loopback() && tokens.empty()) {
    return fail(exit_usage, fmt::format("--listen: {} can be reached from other machines; give --token-file FILE, or "
                                        "listen on 127.0.0.1",
                                        at.value().text()));
  }
  // Before there is a second thread, which inherits it.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  if (const int code = pthread_sigmask(SIG_BLOCK, &ends, nullptr); code != 0) {
    return fail(exit_failure, fmt::format("signals cannot be blocked ({})", std::strerror(code)));
  }
  const result<std::unique_ptr<server::metrics_server>> served = server::metrics_server::start(
      at.value(), std::make_unique<running_programs>(), {.tokens = &tokens, .token_option = "--token-file"});
  if (!served) return fail(exit_failure, served.error().message);
  fmt::print("metrics on http://{}/metrics\n", served.value()->where());
  std::fflush(stdout);
  int ended_by = 0;
  while (sigwait(&ends, &ended_by) != 0) {
  }
  return 0;
}

}  // namespace

std::string prometheus_text(const std::vector<job_snapshot>& jobs) {
  std::string text;
  const auto into = std::back_inserter(text);
  for (const control::statistic_field& field : control::statistic_fields()) {
    const metric described = metric_of(field);
    fmt::format_to(into, "# TYPE {} {}\n", described.name, described.type);
    for (const job_snapshot& job : jobs) {
      for (const preload::job_process& one : job.processes) {
        if (!one.running) continue;
        const std::uint64_t value = one.counted.*field.member;
        fmt::format_to(into, "{}{{{}}} ", described.name, labels_of(job, one));
        if (described.is_time) {
          fmt::format_to(into, "{:.9f}\n", static_cast<double>(value) / 1e9);
        } else {
          fmt::format_to(into, "{}\n", value);
        }
      }
    }
  }
  return text;
}

int metrics(const metrics_options& chosen) {
  if (!chosen.listen.empty()) return serve(chosen);
  if (!chosen.token_file.empty()) return fail(exit_usage, "--token-file protects a port; give --listen, too");
  fmt::print("{}", prometheus_text(take_all_snapshots()));
  return 0;
}

}  // namespace far::tools
