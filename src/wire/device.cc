#include "wire/device.h"

#include <algorithm>

#include "wire/bytes.h"

namespace far::wire {
namespace {

constexpr std::size_t longest_plugin_name = 31;

bool takes_bytes(device_op op) {
  return op == device_op::construct || op == device_op::write || op == device_op::compute || op == device_op::ask ||
         op == device_op::load;
}

}  // namespace

void encode(const device_request& from, std::span<std::byte, device_request_bytes> to) {
  std::ranges::fill(to, std::byte{0});
  store(static_cast<std::uint8_t>(from.op), to.data());
  store(from.code, to.data() + 4);
  store(from.device, to.data() + 8);
  store(from.call, to.data() + 16);
  store(from.object, to.data() + 24);
  store(from.room_bytes, to.data() + 32);
  store(from.deadline_ms, to.data() + 40);
}

void encode(const device_reply& from, std::span<std::byte, device_reply_bytes> to) {
  std::ranges::fill(to, std::byte{0});
  store(static_cast<std::uint32_t>(from.outcome), to.data());
}

std::optional<device_request> decode_device_request(std::span<const std::byte> from) {
  if (from.size() < device_request_bytes || from.size() > device_request_bytes + most_device_bytes) return std::nullopt;
  const auto op = load<std::uint8_t>(from.data());
  const bool has_zeros = load<std::uint8_t>(from.data() + 1) == 0 && load<std::uint16_t>(from.data() + 2) == 0 &&
                         load<std::uint32_t>(from.data() + 44) == 0;
  if (op > static_cast<std::uint8_t>(last_device_op) || !has_zeros) return std::nullopt;
  device_request asked{.op = static_cast<device_op>(op),
                       .code = load<std::uint32_t>(from.data() + 4),
                       .device = load<std::uint64_t>(from.data() + 8),
                       .call = load<std::uint64_t>(from.data() + 16),
                       .object = load<std::uint64_t>(from.data() + 24),
                       .room_bytes = load<std::uint64_t>(from.data() + 32),
                       .deadline_ms = load<std::uint32_t>(from.data() + 40),
                       .bytes = from.subspan(device_request_bytes)};
  if (!takes_bytes(asked.op) && !asked.bytes.empty()) return std::nullopt;
  if (asked.op != device_op::list && asked.call == 0) return std::nullopt;
  return asked;
}

std::optional<device_reply> decode_device_reply(std::span<const std::byte> from) {
  if (from.size() < device_reply_bytes || from.size() > device_reply_bytes + most_device_bytes) return std::nullopt;
  const auto outcome = load<std::uint32_t>(from.data());
  if (outcome > static_cast<std::uint32_t>(last_device_outcome) || load<std::uint32_t>(from.data() + 4) != 0) {
    return std::nullopt;
  }
  return device_reply{static_cast<device_outcome>(outcome), from.subspan(device_reply_bytes)};
}

std::optional<device_construction> decode_construction(std::span<const std::byte> from) {
  if (from.empty()) return std::nullopt;
  const auto length = load<std::uint8_t>(from.data());
  if (from.size() < std::size_t{1} + length) return std::nullopt;
  const std::string_view name(reinterpret_cast<const char*>(from.data()) + 1, length);
  if (!is_plugin_name(name)) return std::nullopt;
  return device_construction{name, from.subspan(1 + std::size_t{length})};
}

bool is_plugin_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  return !name.empty() && name.size() <= longest_plugin_name && std::ranges::all_of(name, is_allowed);
}

const char* name_of(device_outcome outcome) {
  switch (outcome) {
    case device_outcome::ok: return "done";
    case device_outcome::refused: return "refused";
    case device_outcome::no_object: return "no such object";
    case device_outcome::no_device: return "no such device";
    case device_outcome::unknown_plugin: return "no such plugin";
    case device_outcome::no_room: return "no room";
    case device_outcome::timed_out: return "timed out";
    case device_outcome::crashed: return "crashed";
    case device_outcome::lost: return "lost";
    case device_outcome::repeated: return "repeated";
  }
  return "unknown";
}

}  // namespace far::wire
