// Calls of devices (include/far/plugin.h): the arguments and the result of wire::opcode::call with the name "device".
// The same bytes go between a memory server and the process of a device, each after its length (4 bytes).
//
// docs/wire.md describes them for other programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "wire/message.h"

namespace far::wire {

inline constexpr std::string_view device_call_name = "device";

enum class device_op : std::uint8_t {
  list = 0,       // the plugins of the server; result: lines "NAME VERSION INTERFACE"
  construct = 1,  // bytes: length of the plugin's name (1), the name, parameters
  destruct = 2,
  read = 3,
  write = 4,
  erase = 5,
  compute = 6,
  ask = 7,   // a compute that changes nothing, so that it may be repeated
  save = 8,  // `object`: from which byte of all on. From 0 on they are made anew. Result: their number (8), and a part
  load = 9,  // a part of what save returned; `code` 1: the last one
  // From now on the connection leads to the device's process, for operations of this device only. The process answers.
  direct = 10,
};
inline constexpr device_op last_device_op = device_op::direct;

// Whether the device does it, as opposed to what makes, copies and ends devices.
[[nodiscard]] constexpr bool is_operation(device_op op) {
  return op == device_op::read || op == device_op::write || op == device_op::erase || op == device_op::compute ||
         op == device_op::ask;
}

// Whether it must take effect once, however often it is sent.
[[nodiscard]] constexpr bool changes_device(device_op op) {
  return op != device_op::list && op != device_op::read && op != device_op::ask && op != device_op::save &&
         op != device_op::direct;
}

enum class device_outcome : std::uint32_t {
  ok = 0,
  refused = 1,         // by the device; the text says why
  no_object = 2,       // the device has no such object
  no_device = 3,       // the session has no such device
  unknown_plugin = 4,  // the server has no plugin of that name
  no_room = 5,         // the quota, the server's memory, or the number of devices is used up
  timed_out = 6,       // the call took longer than it may; the device is lost
  crashed = 7,         // the device's process ended; the device is lost
  lost = 8,            // it was lost before
  repeated = 9,        // a later call of the device was there already
};
inline constexpr device_outcome last_device_outcome = device_outcome::repeated;

struct device_request {
  device_op op = device_op::list;
  std::uint32_t code = 0;    // of compute and ask: the operation
  std::uint64_t device = 0;  // a number of the client's choice, for the session
  std::uint64_t call = 0;    // a number: greater than those of the device's calls before, the same when repeated
  std::uint64_t object = 0;
  std::uint64_t room_bytes = 0;   // of construct: the memory that the device may take
  std::uint32_t deadline_ms = 0;  // 0: as long as the server permits
  std::span<const std::byte> bytes{};
};
inline constexpr std::size_t device_request_bytes = 48;

struct device_reply {
  device_outcome outcome = device_outcome::ok;
  std::span<const std::byte> bytes;  // the result, or a text about the failure
};
inline constexpr std::size_t device_reply_bytes = 8;

// Of one call, each way: with the headers around it a message holds that.
inline constexpr std::size_t most_device_bytes = 1'048'000;
static_assert(most_device_bytes + call_header_bytes + device_request_bytes + device_reply_bytes <=
              maximum_payload_bytes);

// The part in front of the bytes.
void encode(const device_request& from, std::span<std::byte, device_request_bytes> to);
void encode(const device_reply& from, std::span<std::byte, device_reply_bytes> to);
// Nothing for an unknown operation or outcome, too many bytes, bytes where none belong, or a call without a number.
[[nodiscard]] std::optional<device_request> decode_device_request(std::span<const std::byte> from);
[[nodiscard]] std::optional<device_reply> decode_device_reply(std::span<const std::byte> from);

// The bytes of construct.
struct device_construction {
  std::string_view plugin;
  std::span<const std::byte> parameters;
};
[[nodiscard]] std::optional<device_construction> decode_construction(std::span<const std::byte> from);

// A plugin's name or version: 1 to 31 letters, digits, '-', '_' and '.'.
[[nodiscard]] bool is_plugin_name(std::string_view name);

// "timed out", for messages.
[[nodiscard]] const char* name_of(device_outcome outcome);

}  // namespace far::wire
