#include "server/devices/shelf.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "platform/clock.h"
#include "server/event_log.h"

namespace far::server {
namespace {

using wire::device_op;
using wire::device_outcome;

// For a process to start, and its plugin to be loaded, however short the plugin's calls are.
constexpr std::uint64_t least_start_ns = 5'000'000'000;

std::vector<std::byte> encoded_reply(device_outcome outcome, std::string_view text) {
  std::vector<std::byte> bytes(wire::device_reply_bytes + text.size());
  wire::encode(wire::device_reply{outcome, {}}, std::span(bytes).first<wire::device_reply_bytes>());
  std::memcpy(bytes.data() + wire::device_reply_bytes, text.data(), text.size());
  return bytes;
}

std::size_t put(std::span<const std::byte> reply, std::span<std::byte> into) {
  std::ranges::copy(reply, into.begin());
  return reply.size();
}

}  // namespace

device_shelf::device_shelf(std::shared_ptr<device_host> host, const std::shared_ptr<session>& owner)
    : host_(std::move(host)), owner_(owner), functions_(host_, owner_), owed_(owner_) {}

std::shared_ptr<device_shelf> device_shelf::of(session& owner, const std::shared_ptr<device_host>& host) {
  // Nothing else is ever loaded upon a session.
  if (auto there = std::static_pointer_cast<device_shelf>(owner.burden())) return there;
  const auto made = std::make_shared<device_shelf>(host, owner.shared_from_this());
  const auto shelf = std::static_pointer_cast<device_shelf>(owner.load(made));
  if (shelf == made) host->watch(made);
  return shelf;
}

device_shelf::~device_shelf() {
  end();
}

// Their processes are killed; their destructors do not run.
void device_shelf::end() noexcept {
  functions_.end();
  const lock_guard guard(lock_);
  ended_ = true;
  for (auto& [number, one] : all_) {
    if (!one.body) continue;
    static_cast<void>(count_direct(one));
    one.counters->devices.fetch_sub(1);
    host_->dismiss();
  }
  all_.clear();
}

bool device_shelf::has(std::uint64_t number) {
  const lock_guard guard(lock_);
  return all_.contains(number);
}

device_shelf::addition device_shelf::add(std::uint64_t number, const loaded_plugin& plugin, std::uint64_t room_bytes,
                                         std::uint64_t room_blocks) {
  const lock_guard guard(lock_);
  if (ended_) return addition::ended;
  if (all_.contains(number)) return addition::there;
  if (all_.size() >= most_devices_of_session || !host_->admit()) return addition::too_many;
  result<std::unique_ptr<device_body>> body = host_->start_device(plugin, room_bytes);
  if (!body) {
    host_->dismiss();
    log_limited(body.error().message, platform::monotonic_clock().now_ns());
    return addition::no_process;
  }
  all_[number] = {.body = std::move(body).value(),
                  .plugin = plugin.name,
                  .counters = plugin.counters,
                  .longest_ns = plugin.chosen.deadline_ns,
                  .room_blocks = room_blocks};
  plugin.counters->devices.fetch_add(1);
  return addition::added;
}

std::optional<std::size_t> device_shelf::step(const wire::device_request& asked, std::span<const std::byte> encoded,
                                              std::uint64_t now_ns, std::span<std::byte> into) {
  std::optional<std::size_t> bytes;
  {
    const lock_guard guard(lock_);
    bytes = [&]() -> std::optional<std::size_t> {
      lock_.assert_held();
      const auto found = all_.find(asked.device);
      if (found == all_.end()) {
        // It may have been destructed by this very call, whose reply was lost.
        const bool is_done = asked.op == device_op::destruct;
        return put(encoded_reply(is_done ? device_outcome::ok : device_outcome::no_device, ""), into);
      }
      device& which = found->second;
      std::vector<std::byte> reply;
      if (which.call != 0) {
        // Another's call: its client asks again, and finds the reply or, if nothing was changed, begins it again.
        const bool is_ours = which.call == asked.call && which.op == asked.op;
        if (!advance(found, now_ns, &reply)) return std::nullopt;
        if (is_ours) return put(reply, into);
        return std::nullopt;
      }
      // One that has ended before the call is lost; it has not died of it, and copies may take the call.
      if (which.body && which.body->has_ended()) lose_between_calls(which, now_ns);
      if (which.lost_by == asked.call) return put(encoded_reply(which.lost_how, ""), into);
      if (wire::changes_device(asked.op) && asked.call <= which.changed_by) {
        const bool is_same = asked.call == which.changed_by;
        if (is_same && which.reply.empty()) return put(encoded_reply(device_outcome::lost, ""), into);
        return put(is_same ? which.reply : encoded_reply(device_outcome::repeated, ""), into);
      }
      if (!which.body && asked.op == device_op::destruct) {
        remove(found);
        return put(encoded_reply(device_outcome::ok, ""), into);
      }
      if (!which.body) return put(encoded_reply(device_outcome::lost, ""), into);
      std::uint64_t longest_ns = which.longest_ns;
      if (asked.op == device_op::construct) longest_ns = std::max(longest_ns, least_start_ns);
      if (asked.deadline_ms > 0) {
        longest_ns = std::min(longest_ns, std::uint64_t{asked.deadline_ms} * 1'000'000);
      }
      which.call = asked.call;
      which.op = asked.op;
      which.began_ns = now_ns;
      which.until_ns = free_at_ns(which, now_ns) + longest_ns;
      which.body->begin(encoded, now_ns, which.until_ns);
      if (!advance(found, now_ns, &reply)) return std::nullopt;
      return put(reply, into);
    }();
  }
  owed_.settle();
  return bytes;
}

bool device_shelf::advance(devices::iterator which, std::uint64_t now_ns, std::vector<std::byte>* reply) {
  device& one = which->second;
  device_body::state reached = one.body->advance(now_ns);
  if (reached == device_body::state::waiting) return false;
  const device_op op = one.op;
  const std::uint64_t call = std::exchange(one.call, 0);
  std::vector<std::byte> said;
  if (reached == device_body::state::replied) {
    const std::span<const std::byte> got = one.body->reply();
    if (wire::decode_device_reply(got)) said.assign(got.begin(), got.end());
    if (said.empty()) reached = device_body::state::crashed;
  }
  if (said.empty()) {
    const bool is_late = reached == device_body::state::timed_out;
    said = encoded_reply(is_late ? device_outcome::timed_out : device_outcome::crashed, "");
    log_limited("a device of plugin '" + one.plugin + "' " +
                    (is_late ? "took too long, and is ended" : "has ended its process") + " in a call",
                now_ns);
    lose(one);
  }
  const device_outcome outcome = wire::decode_device_reply(said)->outcome;
  const bool is_ok = outcome == device_outcome::ok;
  count(one, op, outcome, now_ns);
  if (reply != nullptr) *reply = said;
  if (op == device_op::destruct || (op == device_op::construct && !is_ok)) {
    remove(which);
  } else if (wire::changes_device(op)) {
    one.changed_by = call;
    one.reply = std::move(said);
  }
  return true;
}

void device_shelf::count(const device& which, device_op op, device_outcome outcome, std::uint64_t now_ns) {
  plugin_counters& into = *which.counters;
  if (op == device_op::construct && outcome == device_outcome::ok) into.constructed.fetch_add(1);
  if (!wire::is_operation(op)) return;
  into.calls[static_cast<std::size_t>(outcome)].fetch_add(1);
  into.call_ns.fetch_add(now_ns - which.began_ns);
}

// The room of the last reply goes back, too, so the reply is forgotten. Whoever could ask for it has asked for
// something else since.
void device_shelf::lose(device& which) {
  static_cast<void>(count_direct(which));
  which.body.reset();
  which.counters->devices.fetch_sub(1);
  std::vector<std::byte>().swap(which.reply);
  host_->dismiss();
  owed_.add(std::exchange(which.room_blocks, 0));
}

void device_shelf::remove(devices::iterator which) {
  if (which->second.body) lose(which->second);
  all_.erase(which);
}

bool device_shelf::is_unlimited() const {
  const std::shared_ptr<session> owner = owner_.lock();
  return owner && !owner->rates().are_limited();
}

bool device_shelf::may_hand_over(std::uint64_t number) {
  if (!is_unlimited()) return false;
  const lock_guard guard(lock_);
  const auto found = all_.find(number);
  return found != all_.end() && found->second.body && found->second.call == 0 && found->second.body->can_be_direct();
}

bool device_shelf::hand_over(std::uint64_t number, int socket, std::uint64_t cookie) {
  const lock_guard guard(lock_);
  const auto found = all_.find(number);
  if (found == all_.end() || !found->second.body || found->second.call != 0) return false;
  device& which = found->second;
  which.is_direct = true;
  return which.body->hand_over(socket, {.cookie = cookie, .device = number, .longest_ns = which.longest_ns});
}

// What the process says about its calls is not to be trusted, but nobody else's device depends on it.
bool device_shelf::count_direct(device& which) noexcept {
  const std::optional<direct_calls> seen = which.body->direct();
  if (!seen) return false;
  const direct_calls before = std::exchange(which.direct, *seen);
  for (std::size_t i = 0; i < direct_calls::outcomes; ++i) {
    if (seen->ended[i] > before.ended[i]) which.counters->calls[i].fetch_add(seen->ended[i] - before.ended[i]);
  }
  if (seen->took_ns > before.took_ns) which.counters->call_ns.fetch_add(seen->took_ns - before.took_ns);
  return true;
}

// A process that is in a direct call reads our request behind it, and has ended it by the end of its time, or is ended.
// Often it is the same question, whose connection has broken, and which is answered once more from the start. Whatever
// the process says, it is in no call for longer than one may take.
std::uint64_t device_shelf::free_at_ns(device& which, std::uint64_t now_ns) noexcept {
  static_cast<void>(count_direct(which));
  return which.direct.call == 0 ? now_ns : std::clamp(which.direct.until_ns, now_ns, now_ns + which.longest_ns);
}

// The call that was seen last may have ended since, so one is late only if it is seen now; a process that writes just
// now is looked at again. One that has ended writes nothing more.
void device_shelf::follow_direct(device& which, bool has_ended, std::uint64_t now_ns) {
  const bool is_seen = count_direct(which);
  const bool is_late = is_seen && now_ns >= which.direct.until_ns;
  if (which.direct.call == 0 || !(has_ended || is_late)) return;
  which.lost_by = which.direct.call;
  which.lost_how = has_ended ? device_outcome::crashed : device_outcome::timed_out;
  which.counters->calls[static_cast<std::size_t>(which.lost_how)].fetch_add(1);
  log_limited("a device of plugin '" + which.plugin + "' " +
                  (has_ended ? "has ended its process" : "took too long, and is ended") + " in a call",
              now_ns);
  // One that waits here for the other to end has lost the device, too.
  which.call = 0;
  lose(which);
}

void device_shelf::lose_between_calls(device& which, std::uint64_t now_ns) {
  follow_direct(which, true, now_ns);
  if (!which.body) return;
  log_limited("a device of plugin '" + which.plugin + "' has ended its process between two calls", now_ns);
  which.counters->ended.fetch_add(1);
  lose(which);
}

void device_shelf::look_after(std::uint64_t now_ns) {
  functions_.look_after(now_ns);
  const bool may_be_direct = is_unlimited();
  {
    const lock_guard guard(lock_);
    for (auto next = all_.begin(); next != all_.end();) {
      const auto one = next++;
      device& which = one->second;
      if (which.body && which.call == 0 && which.body->has_ended()) lose_between_calls(which, now_ns);
      if (which.body) follow_direct(which, false, now_ns);
      if (!may_be_direct && which.body && which.call == 0 && which.is_direct) {
        which.body->end_direct();
        which.is_direct = false;
      }
      if (which.call != 0) {
        // Until then the answer to a question waits for whoever has asked: taken here, it would be lost.
        if (now_ns >= which.until_ns) static_cast<void>(advance(one, now_ns, nullptr));
      }
    }
  }
  owed_.settle();
}

}  // namespace far::server
