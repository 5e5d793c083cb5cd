#include "preload/settings.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/units.h"
#include "engine/line_cache.h"

namespace far::preload {
namespace {

error wrong_value(const char* name, std::string_view why) {
  return error{std::string(name) + ": " + std::string(why) + "; `farheap run` sets it right", EINVAL};
}

// The value of a variable; an empty one counts as not set.
std::string_view value_of(const char* (*look_up)(const char*), const char* name) {
  const char* value = look_up(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

result<std::uint64_t> parse_budget(std::string_view text) {
  const result<std::uint64_t> bytes = parse_size(text);
  if (!bytes) return wrong_value(variable::local_bytes, bytes.error().message);
  if (bytes.value() < pager::minimum_budget_bytes) {
    return wrong_value(variable::local_bytes, "'" + std::string(text) + "' is below the working minimum of " +
                                                  format_size(pager::minimum_budget_bytes));
  }
  return bytes.value();
}

result<pid_t> parse_pid(std::string_view text) {
  pid_t pid = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (failure != std::errc{} || rest != text.data() + text.size() || pid <= 0) {
    return wrong_value(variable::main_pid, "'" + std::string(text) + "' is not a process id");
  }
  return pid;
}

result<std::uint32_t> parse_sample(std::string_view text) {
  std::uint32_t sample = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), sample);
  if (failure != std::errc{} || rest != text.data() + text.size() || sample == 0) {
    return wrong_value(variable::trace_sample, "'" + std::string(text) + "' is not a number from 1 on");
  }
  return sample;
}

result<std::uint32_t> parse_object_bytes(std::string_view text) {
  std::uint32_t bytes = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  const bool is_number = failure == std::errc{} && rest == text.data() + text.size();
  if (!is_number || (bytes != 0 && !engine::line_cache::is_line_size(bytes))) {
    return wrong_value(variable::object_bytes, "'" + std::string(text) + "' is not 0, 64, 128, 256 or 512");
  }
  return bytes;
}

result<bool> read_switch(const char* (*look_up)(const char* name), const char* name) {
  const std::string_view text = value_of(look_up, name);
  if (text.empty() || text == "0") return false;
  if (text == "1") return true;
  return wrong_value(name, "'" + std::string(text) + "' is neither 0 nor 1");
}

result<void> read_trace_settings(const char* (*look_up)(const char* name), settings& chosen) {
  chosen.trace_directory = value_of(look_up, variable::trace_directory);
  if (!chosen.trace_directory.empty() && chosen.trace_directory.front() != '/') {
    return wrong_value(variable::trace_directory, "'" + chosen.trace_directory + "' is not an absolute path");
  }
  const std::string_view text = value_of(look_up, variable::trace_sample);
  if (text.empty()) return {};
  const result<std::uint32_t> sample = parse_sample(text);
  if (!sample) return sample.error();
  chosen.trace_sample = sample.value();
  return {};
}

result<void> read_pace(const char* (*look_up)(const char* name), engine::eviction_pace& chosen) {
  if (const std::string_view text = value_of(look_up, variable::free_ahead); !text.empty()) {
    const result<double> share = engine::parse_free_share(text);
    if (!share) return wrong_value(variable::free_ahead, share.error().message);
    chosen.free_share = share.value();
  }
  if (const std::string_view text = value_of(look_up, variable::batch); !text.empty()) {
    const result<std::size_t> pages = engine::parse_batch(text);
    if (!pages) return wrong_value(variable::batch, pages.error().message);
    chosen.pages_a_batch = pages.value();
  }
  return {};
}

}  // namespace

bool settings::in_main_process() const {
  return main_pid == 0 || main_pid == getpid();
}

// Without a budget the runtime stays inactive and ignores all other variables.
result<settings> read_settings(const char* (*look_up)(const char* name)) {
  settings chosen;
  const std::string_view budget = value_of(look_up, variable::local_bytes);
  if (budget.empty()) return chosen;
  const result<std::uint64_t> bytes = parse_budget(budget);
  if (!bytes) return bytes.error();
  chosen.active = true;
  chosen.budget_bytes = bytes.value();
  if (const std::string_view far = value_of(look_up, variable::far_uri); !far.empty()) chosen.far_uri = far;
  chosen.far_uri_under_limit = value_of(look_up, variable::far_uri_under_limit);
  if (const std::string_view name = value_of(look_up, variable::policy); !name.empty()) chosen.policy = name;
  if (const result<void> pace = read_pace(look_up, chosen.pace); !pace) return pace.error();
  chosen.stats_json = value_of(look_up, variable::stats_json);
  if (!chosen.stats_json.empty() && chosen.stats_json.front() != '/') {
    return wrong_value(variable::stats_json, "'" + chosen.stats_json + "' is not an absolute path");
  }
  if (const std::string_view mode = value_of(look_up, variable::fault_mode); !mode.empty()) {
    const result<std::optional<pager::fault_mode>> parsed = pager::parse_fault_mode(std::string(mode));
    if (!parsed) return wrong_value(variable::fault_mode, parsed.error().message);
    chosen.mode = parsed.value();
  }
  const result<void> traced = read_trace_settings(look_up, chosen);
  if (!traced) return traced.error();
  if (const std::string_view text = value_of(look_up, variable::object_bytes); !text.empty()) {
    const result<std::uint32_t> parsed = parse_object_bytes(text);
    if (!parsed) return parsed.error();
    chosen.object_bytes = parsed.value();
  }
  chosen.job = value_of(look_up, variable::job);
  const result<bool> local_each = read_switch(look_up, variable::local_each);
  if (!local_each) return local_each.error();
  chosen.local_each = local_each.value();
  const result<bool> local_auto = read_switch(look_up, variable::local_auto);
  if (!local_auto) return local_auto.error();
  chosen.local_auto = local_auto.value();
  const result<bool> verbose = read_switch(look_up, variable::verbose);
  if (!verbose) return verbose.error();
  chosen.verbose = verbose.value();
  if (const std::string_view text = value_of(look_up, variable::main_pid); !text.empty()) {
    const result<pid_t> pid = parse_pid(text);
    if (!pid) return pid.error();
    chosen.main_pid = pid.value();
  }
  return chosen;
}

result<settings> read_settings() {
  return read_settings([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace far::preload
