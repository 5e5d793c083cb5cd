#include "server/devices/function_processes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/printable.h"
#include "far/plugin.h"
#include "server/devices/shelf.h"
#include "server/event_log.h"
#include "wire/device.h"

namespace far::server {
namespace {

using wire::device_op;
using wire::device_outcome;

// What a process may take beside its program. It gets some hundred pages at a time, and keeps nothing.
constexpr std::uint64_t most_room_bytes = 16 * mib;
// The pages of a call, which the process reads where the server has put them.
constexpr std::size_t window_bytes = wire::maximum_batch * page_bytes + 64 * kib;
// After a failure: a plugin that always fails costs a process a second.
constexpr std::uint64_t rest_ns = 1'000'000'000;
constexpr std::uint64_t longest_idle_ns = 60'000'000'000;
constexpr std::uint64_t start_patience_ns = 10'000'000'000;

std::vector<std::byte> encoded(const wire::device_request& asked) {
  std::vector<std::byte> bytes(wire::device_request_bytes);
  wire::encode(asked, std::span(bytes).first<wire::device_request_bytes>());
  bytes.insert(bytes.end(), asked.bytes.begin(), asked.bytes.end());
  return bytes;
}

// The plugin's words, if there are any.
std::string text_of(const std::optional<wire::device_reply>& said) {
  if (!said || said->bytes.empty()) return "";
  const std::string_view text(reinterpret_cast<const char*>(said->bytes.data()), said->bytes.size());
  return ": " + printable(text, FAR_DEVICE_FAILURE_BYTES);
}

}  // namespace

std::string function_processes::why(const std::string& plugin) {
  const lock_guard guard(lock_);
  const auto found = refusals_.find(plugin);
  return found == refusals_.end() ? "" : found->second;
}

void function_processes::note_refusal(const std::string& plugin, std::string text) {
  const lock_guard guard(lock_);
  refusals_[plugin] = std::move(text);
}

void function_processes::end() noexcept {
  const lock_guard guard(lock_);
  ended_ = true;
  for (auto& [plugin, one] : all_) {
    if (one.body) lose(one);
  }
  all_.clear();
}

// The room counts from then on; the session takes it back when it ends.
void function_processes::lose(runner& one) noexcept {
  one.body.reset();
  one.is_busy = false;
  one.is_constructed = false;
  one.counters->devices.fetch_sub(1);
  host_->dismiss();
  owed_.add(std::exchange(one.room_blocks, 0));
}

// Or has had one a moment ago, so that none is begun now.
bool function_processes::has(const std::string& plugin, std::uint64_t now_ns) {
  const lock_guard guard(lock_);
  const auto found = all_.find(plugin);
  return ended_ || (found != all_.end() && (found->second.body || now_ns < found->second.rests_until_ns));
}

bool function_processes::add(const loaded_plugin& plugin, std::uint64_t room_bytes, std::uint64_t room_blocks,
                             std::uint64_t now_ns) {
  const lock_guard guard(lock_);
  runner& one = all_[plugin.name];
  if (ended_ || one.body) return false;
  if (!host_->admit()) {
    refusals_[plugin.name] = "the server has as many processes for devices and functions as it may have";
    return false;
  }
  result<std::unique_ptr<device_body>> body = host_->start_device(plugin, room_bytes, window_bytes);
  if (!body) {
    host_->dismiss();
    one.rests_until_ns = now_ns + rest_ns;
    log_limited(body.error().message, now_ns);
    refusals_[plugin.name] = body.error().message;
    return false;
  }
  one = {.body = std::move(body).value(), .counters = plugin.counters, .room_blocks = room_blocks, .asked_by = {}};
  plugin.counters->devices.fetch_add(1);
  std::vector<std::byte> construction(1 + plugin.name.size());
  construction[0] = static_cast<std::byte>(plugin.name.size());
  std::memcpy(construction.data() + 1, plugin.name.data(), plugin.name.size());
  one.is_busy = true;
  one.began_ns = one.used_ns = now_ns;
  one.until_ns = now_ns + start_patience_ns;
  one.body->begin(encoded({.op = device_op::construct, .call = ++one.calls, .bytes = construction}), now_ns,
                  one.until_ns);
  return true;
}

bool function_processes::begin(runner& one, const std::shared_ptr<call>& asked, std::uint64_t now_ns) {
  wire::device_request request{.op = device_op::ask, .code = asked->number, .call = one.calls + 1};
  const std::span<std::byte> window = one.body->window();
  const bool is_shared = window.size() >= asked->argument_bytes;
  std::vector<std::byte> sent(is_shared ? 0 : asked->argument_bytes);
  if (!asked->fill(is_shared ? window.first(asked->argument_bytes) : std::span(sent))) return false;
  ++one.calls;
  one.is_busy = true;
  one.asked_by = asked;
  one.began_ns = one.used_ns = now_ns;
  one.until_ns = asked->until_ns;
  if (is_shared) {
    one.body->begin_in_window(encoded(request), asked->argument_bytes, now_ns, one.until_ns);
  } else {
    request.bytes = sent;
    one.body->begin(encoded(request), now_ns, one.until_ns);
  }
  return true;
}

function_processes::ending function_processes::take(const std::string& plugin, runner& one, const call* ours,
                                                    std::uint64_t now_ns, std::vector<std::byte>& reply) {
  if (!one.is_busy) return ending::idle;
  device_body::state reached = one.body->advance(now_ns);
  if (reached == device_body::state::waiting) return ending::under_way;
  const std::shared_ptr<call> asked_by = one.asked_by.lock();
  const bool is_ours = ours != nullptr && asked_by.get() == ours;
  std::optional<wire::device_reply> said;
  if (reached == device_body::state::replied) {
    if (asked_by && !is_ours) return ending::under_way;
    said = wire::decode_device_reply(one.body->reply());
    if (!said) reached = device_body::state::crashed;
  }
  const device_outcome outcome = said                                       ? said->outcome
                                 : reached == device_body::state::timed_out ? device_outcome::timed_out
                                                                            : device_outcome::crashed;
  if (one.is_constructed) {
    one.counters->calls[static_cast<std::size_t>(outcome)].fetch_add(1);
    one.counters->call_ns.fetch_add(now_ns - one.began_ns);
  }
  const bool is_lost = !said || (!one.is_constructed && outcome != device_outcome::ok);
  if (is_lost) {
    refusals_[plugin] = "the process for the functions of plugin '" + plugin + "' " +
                        (outcome == device_outcome::timed_out ? "took too long, and is ended" : "has failed") +
                        text_of(said);
    log_limited(refusals_[plugin], now_ns);
    one.rests_until_ns = now_ns + rest_ns;
    lose(one);
    return ending::failed;
  }
  one.is_busy = false;
  one.is_constructed = true;
  one.asked_by.reset();
  if (!is_ours) return ending::idle;
  if (outcome != device_outcome::ok) {
    refusals_[plugin] = "a function of plugin '" + plugin + "' refuses a call" + text_of(said);
    log_limited(refusals_[plugin], now_ns, log_level::info);
    return ending::failed;
  }
  reply.assign(said->bytes.begin(), said->bytes.end());
  return ending::ours;
}

function_processes::step function_processes::go_on(session& caller, const loaded_plugin& plugin,
                                                   const std::shared_ptr<call>& asked, std::uint64_t now_ns,
                                                   std::vector<std::byte>& reply) {
  // The quota is charged before there is a process, without our lock.
  if (!has(plugin.name, now_ns)) {
    const std::uint64_t room_bytes = std::min(plugin.chosen.room_bytes, most_room_bytes);
    const std::uint64_t blocks = (room_bytes + block_bytes - 1) / block_bytes + blocks_of_device;
    // The program can do without: nobody's session ends for it.
    const session::room got = caller.take_room(blocks, /*may_end_others=*/false);
    if (got == session::room::wait) return now_ns < asked->until_ns ? step::wait : step::refused;
    if (got != session::room::granted) {
      const std::string what =
          got == session::room::too_many
              ? "it counts as a device, and the tenant has as many as its --limit permits"
              : "it takes " + format_size(blocks * block_bytes) + " of the tenant's quota and of the server's --memory";
      note_refusal(plugin.name,
                   "there is no room for a process for the functions of plugin '" + plugin.name + "': " + what);
      return step::refused;
    }
    if (!add(plugin, room_bytes, blocks, now_ns)) caller.give_back_room(blocks, 1);
  }
  const step reached = [&] {
    const lock_guard guard(lock_);
    const auto found = all_.find(plugin.name);
    if (found == all_.end() || !found->second.body) return step::refused;
    runner& one = found->second;
    const bool is_late = now_ns >= asked->until_ns;
    switch (take(plugin.name, one, asked.get(), now_ns, reply)) {
      case ending::ours: return step::done;
      case ending::failed: return step::refused;
      case ending::under_way:
        if (!is_late) return step::wait;
        break;
      case ending::idle:
        if (!is_late) return begin(one, asked, now_ns) ? step::wait : step::refused;
        break;
    }
    refusals_[plugin.name] = "the process for the functions of plugin '" + plugin.name + "' was busy for too long";
    return step::refused;
  }();
  owed_.settle();
  return reached;
}

void function_processes::look_after(std::uint64_t now_ns) {
  {
    const lock_guard guard(lock_);
    for (auto& [plugin, one] : all_) {
      if (!one.body) continue;
      std::vector<std::byte> nobodys;
      if (one.is_busy && (one.asked_by.expired() || now_ns >= one.until_ns)) {
        static_cast<void>(take(plugin, one, nullptr, now_ns, nobodys));
      }
      if (!one.body || one.is_busy) continue;
      if (now_ns - std::min(now_ns, one.used_ns) >= longest_idle_ns || one.body->has_ended()) lose(one);
    }
  }
  owed_.settle();
}

}  // namespace far::server
