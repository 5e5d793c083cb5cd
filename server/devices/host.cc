#include "server/devices/host.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "platform/clock.h"
#include "server/devices/shelf.h"

namespace far::server {
namespace {

constexpr std::uint64_t longest_deadline_ns = 60'000'000'000;
constexpr std::uint64_t start_patience_ns = 30'000'000'000;

error about(const std::string& text, const std::string& why) {
  return error{"--plugin " + text + ": " + why, EINVAL};
}

}  // namespace

// "NAME VERSION INTERFACE\n"
result<std::string> device_host::describe(const plugin_choice& chosen) {
  result<std::unique_ptr<device_process>> process =
      device_process::start(program_, {chosen.file, chosen.options, chosen.room_bytes}, dead_);
  if (!process) return process.error();
  std::array<std::byte, wire::device_request_bytes> request;
  wire::encode(wire::device_request{}, request);
  const std::uint64_t began_ns = platform::monotonic_clock().now_ns();
  process.value()->begin(request, began_ns, began_ns + start_patience_ns);
  for (;;) {
    const device_process::state reached = process.value()->advance(platform::monotonic_clock().now_ns());
    if (reached == device_process::state::crashed) return about(chosen.file, "it ended as it was loaded");
    if (reached == device_process::state::timed_out) return about(chosen.file, "it cannot be loaded within 30s");
    if (reached == device_process::state::replied) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::optional<wire::device_reply> said = wire::decode_device_reply(process.value()->reply());
  if (!said) return about(chosen.file, "it does not answer as a plugin");
  std::string text(reinterpret_cast<const char*>(said->bytes.data()), said->bytes.size());
  if (said->outcome != wire::device_outcome::ok) return about(chosen.file, text);
  return text;
}

result<plugin_choice> parse_plugin(const std::string& text) {
  const std::size_t colon = text.find(':');
  plugin_choice chosen;
  chosen.file = text.substr(0, colon);
  if (chosen.file.empty()) return about(text, "the file is missing; write for example --plugin ./sorted.so");
  std::string rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string option = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    const std::size_t sign = option.find('=');
    const std::string value = sign == std::string::npos ? "" : option.substr(sign + 1);
    if (option.starts_with("deadline=")) {
      const result<std::uint64_t> deadline = parse_duration_ns(value);
      if (!deadline || deadline.value() == 0 || deadline.value() > longest_deadline_ns) {
        return about(text, "'" + value + "' is no time for a call; write for example deadline=2s, at most 60s");
      }
      chosen.deadline_ns = deadline.value();
    } else if (option.starts_with("room=")) {
      const result<std::uint64_t> room = parse_size(value);
      if (!room || room.value() < mib) {
        return about(text, "'" + value + "' is no memory for a device; write for example room=64M, at least 1M");
      }
      chosen.room_bytes = room.value();
    } else {
      chosen.options += (chosen.options.empty() ? "" : ",") + option;
    }
  }
  return chosen;
}

result<std::shared_ptr<device_host>> device_host::start(const std::vector<plugin_choice>& chosen, std::string program) {
  auto host = std::make_shared<device_host>();
  host->program_ = std::move(program);
  for (const plugin_choice& one : chosen) {
    const result<std::string> described = host->describe(one);
    if (!described) return described.error();
    const std::size_t space = described.value().find(' ');
    std::string name = described.value().substr(0, space);
    std::string version = described.value().substr(space + 1, described.value().find(' ', space + 1) - space - 1);
    if (host->find(name) != nullptr) return about(one.file, "there is another plugin '" + name + "'; leave one out");
    host->plugins_.push_back({.chosen = one, .name = std::move(name), .version = std::move(version)});
    host->list_ += described.value();
  }
  host->dead_.wait();
  return host;
}

std::shared_ptr<device_host> device_host::simulate(std::vector<loaded_plugin> plugins, starter begin) {
  auto host = std::make_shared<device_host>();
  host->start_ = std::move(begin);
  host->plugins_ = std::move(plugins);
  return host;
}

result<std::unique_ptr<device_body>> device_host::start_device(const loaded_plugin& plugin, std::uint64_t room_bytes,
                                                               std::size_t window_bytes) {
  if (start_) return start_(plugin, window_bytes);
  dead_.tidy();
  result<std::unique_ptr<device_process>> process =
      device_process::start(program_, {plugin.chosen.file, plugin.chosen.options, room_bytes, window_bytes}, dead_);
  if (!process) return process.error();
  return std::unique_ptr<device_body>(std::move(process).value());
}

const loaded_plugin* device_host::find(std::string_view name) const {
  const auto found = std::ranges::find(plugins_, name, &loaded_plugin::name);
  return found == plugins_.end() ? nullptr : &*found;
}

bool device_host::admit() {
  if (devices_.fetch_add(1) < most_devices) return true;
  dismiss();
  return false;
}

void device_host::watch(const std::shared_ptr<device_shelf>& added) {
  const lock_guard guard(lock_);
  shelves_.push_back(added);
}

void device_host::look_after(std::uint64_t now_ns) {
  std::vector<std::shared_ptr<device_shelf>> alive;
  {
    const lock_guard guard(lock_);
    std::erase_if(shelves_, [](const std::weak_ptr<device_shelf>& shelf) { return shelf.expired(); });
    for (const std::weak_ptr<device_shelf>& shelf : shelves_) {
      if (std::shared_ptr<device_shelf> held = shelf.lock()) alive.push_back(std::move(held));
    }
  }
  for (const std::shared_ptr<device_shelf>& shelf : alive) shelf->look_after(now_ns);
  dead_.tidy();
}

}  // namespace far::server
