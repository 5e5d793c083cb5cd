#include "remote.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "backend/tcp/tcp_uri.h"
#include "base/units.h"
#include "budget.h"
#include "message.h"
#include "preload/control.h"
#include "program.h"

namespace far::tools {
namespace {

result<pid_t> parse_pid(const std::string& text) {
  pid_t pid = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, pid);
  if (failure != std::errc{} || rest != end || pid <= 0) {
    return error{"'" + text + "' is not a process id; write the number that `pgrep PROGRAM` prints", exit_usage};
  }
  return pid;
}

// "peak_local_bytes" 1073741824 -> "1.00 GiB": the unit is the last word of the name.
std::string readable(const std::string& name, std::uint64_t value) {
  if (name.ends_with("_bytes")) return format_size(value);
  if (name.ends_with("_ns")) return format_duration(value);
  return std::to_string(value);
}

}  // namespace

int resize(const std::string& pid, const std::string& size) {
  const result<pid_t> process = parse_pid(pid);
  if (!process) return fail(exit_usage, process.error().message);
  const result<platform::system_memory> memory = platform::read_system_memory();
  if (!memory) return fail(exit_failure, memory.error().message);
  const result<std::uint64_t> budget = parse_budget(size, memory.value());
  if (!budget) return fail(exit_usage, budget.error().message);
  const result<std::string> reply =
      preload::send_control_request(process.value(), fmt::format("resize {}", budget.value()));
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
  const result<std::string> reply = preload::send_control_request(process.value(), "add-server " + name);
  if (!reply) return fail(exit_failure, reply.error().message);
  fmt::print("process {} now uses server {}\n", process.value(), name);
  return 0;
}

int stats(const std::string& pid, bool json) {
  const result<pid_t> process = parse_pid(pid);
  if (!process) return fail(exit_usage, process.error().message);
  const result<std::string> reply = preload::send_control_request(process.value(), "stats");
  if (!reply) return fail(exit_failure, reply.error().message);
  if (json) {
    fmt::print("{}\n", reply.value());
    return 0;
  }
  const auto counted = nlohmann::ordered_json::parse(reply.value(), nullptr, false);
  if (!counted.is_object()) {
    return fail(exit_failure, fmt::format("process {} sent statistics that are not JSON; use the `farheap` it was "
                                          "started with",
                                          process.value()));
  }
  for (const auto& [name, value] : counted.items()) {
    if (value.is_number_unsigned()) fmt::print("{:<20} {:>12}\n", name, readable(name, value.get<std::uint64_t>()));
  }
  return 0;
}

}  // namespace far::tools
