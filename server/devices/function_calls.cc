#include "server/devices/function_calls.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "base/page_hash.h"
#include "base/printable.h"
#include "base/units.h"
#include "far/plugin.h"
#include "server/devices/shelf.h"
#include "server/event_log.h"
#include "wire/bytes.h"
#include "wire/function.h"

namespace far::server {
namespace {

static_assert(wire::why_number == plugin::detail::why_number);

// What comes behind it on the connection waits.
constexpr std::uint64_t longest_call_ns = 1'000'000'000;

// No call begins when those before it in its round have used up the time of two, so a round takes that of three at
// most. A request that arrives during one round is answered in the next: it waits for six calls, or three quarters of
// the time-out of a client that gives each an eighth.
constexpr std::uint64_t calls_of_round = 2;

// How long the client has others wait for one call.
std::uint64_t patience_ns(const wire::function_request& asked) {
  const std::uint64_t wanted_ns = std::uint64_t{asked.deadline_ms} * 1'000'000;
  return wanted_ns == 0 ? longest_call_ns : std::min(wanted_ns, longest_call_ns);
}

// "squares 1.0, sorted 1.0"
std::string names_of(const device_host& host) {
  std::string names;
  for (const loaded_plugin& one : host.plugins()) {
    names += (names.empty() ? "" : ", ") + one.name + " " + one.version;
  }
  return names;
}

std::string name_of(const wire::function_request& asked) {
  return "plugin '" + printable(asked.plugin, 31) + "' " + printable(asked.version, 31);
}
std::string others(const device_host& host) {
  return "there is " + names_of(host) + "; load the other with --plugin FILE";
}

std::size_t padded(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

struct layout {
  std::size_t sizes = 0;  // of the parts: where they are
  std::size_t parts = 0;
  std::size_t end = 0;
};

layout layout_of(const wire::function_request& asked) {
  layout of;
  of.sizes = FAR_FUNCTION_HEAD + padded(asked.arguments.size(), 8);
  of.parts = padded(of.sizes + asked.ranges.count * sizeof(std::uint32_t), FAR_FUNCTION_ALIGNMENT);
  of.end = of.parts;
  for (const wire::range& one : asked.ranges.all()) of.end += padded(one.length_bytes, FAR_FUNCTION_ALIGNMENT);
  return of;
}

}  // namespace

std::size_t gathered_bytes(const wire::function_request& asked) {
  return layout_of(asked).end;
}

bool gather(const session& data, const wire::function_request& asked, std::vector<std::uint64_t>& checks,
            std::span<std::byte> into) {
  const layout of = layout_of(asked);
  const std::span<const wire::range> ranges = asked.ranges.all();
  std::byte* const to = into.data();
  // What lies between the parts is not looked at.
  std::memset(to, 0, of.parts);
  wire::store(std::uint64_t{FAR_FUNCTION_MARK}, to);
  wire::store(asked.element_bytes, to + 8);
  wire::store(asked.result_bytes, to + 12);
  wire::store(static_cast<std::uint32_t>(asked.arguments.size()), to + 16);
  wire::store(static_cast<std::uint32_t>(ranges.size()), to + 20);
  std::ranges::copy(asked.arguments, to + FAR_FUNCTION_HEAD);
  std::size_t at = of.parts;
  checks.clear();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const wire::range& one = ranges[i];
    const std::byte* const slot = data.address_of(one.slot);
    if (slot == nullptr) return false;
    wire::store(one.length_bytes, to + of.sizes + i * sizeof one.length_bytes);
    std::memcpy(to + at, slot + one.offset_bytes, one.length_bytes);
    checks.push_back(hash_of_pieces(asked.hash, slot));
    at += padded(one.length_bytes, FAR_FUNCTION_ALIGNMENT);
  }
  return true;
}

function_calls::progress function_calls::go_on(session& caller, std::span<const std::byte> arguments,
                                               std::uint64_t now_ns, std::span<std::byte> into) {
  const std::optional<wire::function_request> asked = wire::decode_function(arguments);
  if (!asked) return {.result = wire::status::call_failed};
  if (asked->number == wire::why_number) return say_why(caller, *asked, into);
  const loaded_plugin* const plugin = host_->find(asked->plugin);
  if (plugin == nullptr || plugin->version != asked->version) {
    log_limited("a client asks for functions of " + name_of(*asked) + ", and computes them itself: " + others(*host_),
                now_ns, log_level::info);
    return {.result = wire::status::unknown_call};
  }
  const std::shared_ptr<device_shelf> shelf = device_shelf::of(caller, host_);
  if (!shelf) return {.result = wire::status::call_failed};
  if (!asked_) {
    if (used_ns_ >= calls_of_round * patience_ns(*asked)) {
      shelf->functions().note_refusal(
          plugin->name, "the server is busy: functions that were called before on the same connection took " +
                            format_duration(used_ns_) + "; raise the client's timeout, or call them of fewer pages");
      return {.result = wire::status::call_failed};
    }
    asked_ = std::make_shared<function_processes::call>();
    asked_->number = asked->number;
    asked_->until_ns = now_ns + std::min(plugin->chosen.deadline_ns, patience_ns(*asked));
    since_ns_ = now_ns;
    is_allocated_ = true;
  }
  asked_->argument_bytes = gathered_bytes(*asked);
  asked_->fill = [&](std::span<std::byte> to) { return is_allocated_ = gather(caller, *asked, checks_, to); };
  const function_processes::step reached = shelf->functions().go_on(caller, *plugin, asked_, now_ns, reply_);
  if (reached == function_processes::step::wait) {
    asked_->fill = {};
    return {.retry_at_ns = now_ns + pause_ns(now_ns - since_ns_)};
  }
  asked_.reset();
  used_ns_ += now_ns - since_ns_;
  if (!is_allocated_) return {.result = wire::status::not_allocated};
  const std::size_t count = asked->ranges.count;
  const std::size_t bytes = asked->result_bytes;
  const bool is_whole = reached == function_processes::step::done &&
                        reply_.size() == sizeof(std::uint64_t) + count * bytes &&
                        wire::load<std::uint64_t>(reply_.data()) == FAR_FUNCTION_MARK;
  if (!is_whole && reached == function_processes::step::done) {
    shelf->functions().note_refusal(plugin->name, "function " + std::to_string(asked->number) + " of plugin '" +
                                                      plugin->name + "' returned " + std::to_string(reply_.size()) +
                                                      " bytes, which are no results");
  }
  if (!is_whole) return {.result = wire::status::call_failed};
  std::byte* to = into.data();
  for (std::size_t i = 0; i < count; ++i, to += bytes + sizeof checks_[i]) {
    std::memcpy(to, reply_.data() + sizeof(std::uint64_t) + i * bytes, bytes);
    wire::store(checks_[i], to + bytes);
  }
  // A page is hashed as a whole.
  return {.reply_bytes = static_cast<std::size_t>(to - into.data()), .touched_bytes = count * page_bytes};
}

// The text, for each range, with the hash of its page: so it travels as any other result.
function_calls::progress function_calls::say_why(session& caller, const wire::function_request& asked,
                                                 std::span<std::byte> into) {
  const loaded_plugin* const plugin = host_->find(asked.plugin);
  std::string text;
  if (plugin == nullptr || plugin->version != asked.version) {
    text = "the server does not have " + name_of(asked) + ": " + others(*host_);
  } else if (const std::shared_ptr<device_shelf> shelf = device_shelf::of(caller, host_)) {
    text = shelf->functions().why(plugin->name);
  }
  std::byte* to = into.data();
  for (const wire::range& one : asked.ranges.all()) {
    const std::byte* const slot = caller.address_of(one.slot);
    if (slot == nullptr) return {.result = wire::status::not_allocated};
    std::memset(to, 0, asked.result_bytes);
    std::memcpy(to, text.data(), std::min<std::size_t>(text.size(), asked.result_bytes));
    wire::store(hash_of_pieces(asked.hash, slot), to + asked.result_bytes);
    to += asked.result_bytes + sizeof(std::uint64_t);
  }
  return {.reply_bytes = static_cast<std::size_t>(to - into.data()), .touched_bytes = asked.ranges.count * page_bytes};
}

}  // namespace far::server
