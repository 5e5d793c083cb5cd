#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "backend/tcp/tcp_uri.h"
#include "base/log.h"
#include "base/units.h"
#include "commands.h"
#include "control/control.h"
#include "job_view.h"
#include "message.h"
#include "preload/budget.h"
#include "preload/report.h"
#include "program.h"

namespace far::tools {
namespace {

// "peak_local_bytes" 1073741824 -> "1.00 GiB": the unit is the last word of the name.
std::string readable(const std::string& name, std::uint64_t value) {
  if (name.ends_with("_bytes")) return format_size(value);
  if (name.ends_with("_ns")) return format_duration(value);
  return std::to_string(value);
}

using json = nlohmann::ordered_json;

void put_statistics(json& into, const engine::statistics& counted) {
  for (const preload::statistic_field& field : preload::statistic_fields()) into[field.name] = counted.*field.member;
}

json to_json(const preload::job_process& one) {
  json object{{"pid", one.pid},
              {"program", one.program},
              {"running", one.running ? 1U : 0U},
              {"elapsed_ns", one.elapsed_ns},
              {"user_ns", one.used.user_ns},
              {"system_ns", one.used.system_ns},
              {"peak_rss_bytes", one.used.peak_rss_bytes}};
  put_statistics(object, one.counted);
  return object;
}

// The keys are those of --stats-json.
json to_json(const job_snapshot& job) {
  json object;
  put_statistics(object, job.totals.counted);
  object["elapsed_ns"] = job.totals.elapsed_ns;
  object["user_ns"] = job.totals.used.user_ns;
  object["system_ns"] = job.totals.used.system_ns;
  object["peak_rss_bytes"] = job.totals.used.peak_rss_bytes;
  object["process_count"] = job.totals.processes;
  object["processes_running"] = job.totals.running;
  object["processes_unlisted"] = job.totals.unlisted;
  object["processes"] = json::array();
  for (const preload::job_process& one : job.processes) object["processes"].push_back(to_json(one));
  return object;
}

void print_numbers(const json& counted) {
  for (const auto& [name, value] : counted.items()) {
    if (value.is_number_unsigned()) fmt::print("{:<20} {:>12}\n", name, readable(name, value.get<std::uint64_t>()));
  }
}

void print_job(const job_snapshot& job) {
  print_numbers(to_json(job));
  if (job.totals.processes < 2) return;
  fmt::print("\n{:>8}  {:<16} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "PID", "program", "local", "of", "far",
             "misses", "evicted", "waited");
  for (const preload::job_process& one : job.processes) {
    if (!one.running) continue;
    fmt::print("{:>8}  {:<16.16} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n", one.pid, one.program,
               format_size(one.counted.local_bytes), format_size(one.counted.budget_bytes),
               format_size(one.counted.far_bytes), one.counted.misses, one.counted.evicted_pages,
               format_duration(one.counted.wait_ns));
  }
}

}  // namespace

int resize(const std::string& pid, const std::string& size) {
  const result<pid_t> process = parse_pid(pid);
  if (!process) return fail(exit_usage, process.error().message);
  const result<platform::system_memory> memory = platform::read_system_memory();
  if (!memory) return fail(exit_failure, memory.error().message);
  const result<std::uint64_t> budget = preload::parse_budget(size, memory.value());
  if (!budget) return fail(exit_usage, budget.error().message);
  if (budget.value() > memory.value().usable_bytes()) {
    log_line(log_level::warning, "%s is more than the %s that there is here; the system may run out of memory",
             size.c_str(), format_size(memory.value().usable_bytes()).c_str());
  }
  const result<std::string> reply =
      control::send_control_request(process.value(), fmt::format("resize {}", budget.value()));
  if (!reply) return fail(exit_failure, reply.error().message);
  fmt::print("process {} now has a budget of {}\n", process.value(), format_size(budget.value()));
  return 0;
}

int add_server(const std::string& pid, const std::string& server) {
  const result<pid_t> process = parse_pid(pid);
  if (!process) return fail(exit_usage, process.error().message);
  const result<backend::tcp_endpoint> endpoint = backend::parse_tcp_endpoint(server);
  if (!endpoint) return fail(exit_usage, endpoint.error().message);
  const std::string name = endpoint.value().text();
  const result<std::string> reply = control::send_control_request(process.value(), "add-server " + name);
  if (!reply) return fail(exit_failure, reply.error().message);
  fmt::print("process {} now uses server {}\n", process.value(), name);
  return 0;
}

// What is left to move when there is no progress for so long is reported, and moves on by itself when it can.
constexpr std::chrono::seconds longest_standstill{60};

int remove_server(const std::string& pid, const std::string& server) {
  const result<pid_t> process = parse_pid(pid);
  if (!process) return fail(exit_usage, process.error().message);
  const result<backend::tcp_endpoint> endpoint = backend::parse_tcp_endpoint(server);
  if (!endpoint) return fail(exit_usage, endpoint.error().message);
  const std::string name = endpoint.value().text();
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  auto moved_at = std::chrono::steady_clock::now();
  // Later requests are for the removal that has begun: a server of this name that is added meanwhile stays.
  for (std::string request = "remove-server "; true; request = "removal ") {
    const result<std::string> reply = control::send_control_request(process.value(), request + name);
    if (!reply) return fail(exit_failure, reply.error().message);
    std::uint64_t left = 0;
    const std::string& text = reply.value();
    if (std::from_chars(text.data(), text.data() + text.size(), left).ec != std::errc{}) {
      return fail(exit_failure, fmt::format("process {} said '{}', which is no number of bytes; use the `farheap` it "
                                            "was started with",
                                            process.value(), text));
    }
    if (left == 0) break;
    if (left < least) moved_at = std::chrono::steady_clock::now();
    least = std::min(least, left);
    if (std::chrono::steady_clock::now() - moved_at > longest_standstill) {
      return fail(exit_failure,
                  fmt::format("server {} still holds {} of process {}, and nothing has moved for a minute; look at its "
                              "messages, add a server, or repeat the command to go on waiting",
                              name, format_size(left), process.value()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  fmt::print("process {} does not use server {} any more\n", process.value(), name);
  return 0;
}

// A process of a job answers for itself alone; then the numbers of the whole job come from the job's file.
int stats(const std::string& pid, bool for_machines) {
  const result<pid_t> process = parse_pid(pid);
  if (!process) return fail(exit_usage, process.error().message);
  const result<std::string> reply = control::send_control_request(process.value(), "stats");
  if (!reply) return fail(exit_failure, reply.error().message);
  const json counted = json::parse(reply.value(), nullptr, false);
  if (!counted.is_object()) {
    return fail(exit_failure, fmt::format("process {} sent statistics that are not JSON; use the `farheap` it was "
                                          "started with",
                                          process.value()));
  }
  if (!counted.contains("in_job")) {
    if (for_machines) return fmt::print("{}\n", reply.value()), 0;
    return print_numbers(counted), 0;
  }
  const result<preload::job_mapping> job = find_job(process.value());
  if (!job) return fail(exit_failure, job.error().message);
  const job_snapshot taken = take_snapshot(job.value());
  // Bytes of a program's name that are not UTF-8 are replaced, not thrown about: a long name is cut anywhere.
  if (for_machines) return fmt::print("{}\n", to_json(taken).dump(-1, ' ', false, json::error_handler_t::replace)), 0;
  return print_job(taken), 0;
}

}  // namespace far::tools
