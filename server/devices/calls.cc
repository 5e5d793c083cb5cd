#include "server/devices/calls.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "server/devices/shelf.h"

namespace far::server {
namespace {

using wire::device_op;
using wire::device_outcome;

std::size_t put(device_outcome outcome, std::string_view text, std::span<std::byte> into) {
  wire::encode(wire::device_reply{outcome, {}}, into.first<wire::device_reply_bytes>());
  std::memcpy(into.data() + wire::device_reply_bytes, text.data(), text.size());
  return wire::device_reply_bytes + text.size();
}

// Nothing else is ever loaded upon a session.
std::shared_ptr<device_shelf> shelf_of(const session& caller) {
  return std::static_pointer_cast<device_shelf>(caller.burden());
}

}  // namespace

device_calls::progress device_calls::go_on(session& caller, std::span<const std::byte> arguments, std::uint64_t now_ns,
                                           std::span<std::byte> into) {
  const std::optional<wire::device_request> asked = wire::decode_device_request(arguments);
  if (!asked) return {.result = wire::status::call_failed};
  std::optional<std::size_t> bytes;
  if (asked->op == device_op::list) {
    bytes = put(device_outcome::ok, host_->list(), into);
  } else if (asked->op == device_op::construct) {
    bytes = construct(caller, *asked, arguments, now_ns, into);
  } else if (asked->op == device_op::direct) {
    bytes = put(device_outcome::refused, "calls of this device come by the server", into);
  } else if (const std::shared_ptr<device_shelf> shelf = shelf_of(caller)) {
    bytes = shelf->step(*asked, arguments, now_ns, into);
  } else {
    bytes = put(asked->op == device_op::destruct ? device_outcome::ok : device_outcome::no_device, "", into);
  }
  if (bytes) {
    waiting_since_ns_ = 0;
    return {.reply_bytes = *bytes};
  }
  if (waiting_since_ns_ == 0) waiting_since_ns_ = std::max<std::uint64_t>(now_ns, 1);
  return {.retry_at_ns = now_ns + pause_ns(now_ns - waiting_since_ns_)};
}

bool device_calls::may_hand_over(const session& caller, const wire::device_request& asked) const {
  if (asked.op != device_op::direct) return false;
  const std::shared_ptr<device_shelf> shelf = shelf_of(caller);
  return shelf && shelf->may_hand_over(asked.device);
}

bool device_calls::hand_over(const session& caller, std::uint64_t device, int socket, std::uint64_t cookie) const {
  const std::shared_ptr<device_shelf> shelf = shelf_of(caller);
  return shelf && shelf->hand_over(device, socket, cookie);
}

// The quota is charged before there is a process, so that no tenant can have more processes than its quota pays for.
std::optional<std::size_t> device_calls::construct(session& caller, const wire::device_request& asked,
                                                   std::span<const std::byte> encoded, std::uint64_t now_ns,
                                                   std::span<std::byte> into) {
  const std::optional<wire::device_construction> wanted = wire::decode_construction(asked.bytes);
  if (!wanted) return put(device_outcome::refused, "the plugin's name is none", into);
  const loaded_plugin* const plugin = host_->find(wanted->plugin);
  if (plugin == nullptr) return put(device_outcome::unknown_plugin, host_->list(), into);
  if (asked.room_bytes < mib || asked.room_bytes > plugin->chosen.room_bytes) {
    return put(device_outcome::no_room,
               "a device of this plugin may take 1 MiB to " + format_size(plugin->chosen.room_bytes), into);
  }
  const std::shared_ptr<device_shelf> shelf = device_shelf::of(caller, host_);
  if (!shelf) return put(device_outcome::no_device, "the session has ended", into);
  if (!shelf->has(asked.device)) {
    const std::uint64_t blocks = (asked.room_bytes + block_bytes - 1) / block_bytes + blocks_of_device;
    const session::room got = caller.take_room(blocks, /*may_end_others=*/true);
    if (got == session::room::wait) return std::nullopt;
    if (got == session::room::too_many) {
      return put(device_outcome::no_room, "the tenant has too many devices; end some, or raise its --limit", into);
    }
    if (got == session::room::none) {
      return put(device_outcome::no_room, "the quota or the server's memory is used up, or the server is draining",
                 into);
    }
    const device_shelf::addition done = shelf->add(asked.device, *plugin, asked.room_bytes, blocks);
    if (done != device_shelf::addition::added) caller.give_back_room(blocks, 1);
    if (done == device_shelf::addition::too_many)
      return put(device_outcome::no_room, "there are too many devices", into);
    if (done == device_shelf::addition::no_process) {
      return put(device_outcome::no_room, "the server's system gives no process", into);
    }
  }
  return shelf->step(asked, encoded, now_ns, into);
}

}  // namespace far::server
