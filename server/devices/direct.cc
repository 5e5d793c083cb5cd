#include "server/devices/direct.h"

#include <cstring>
#include <type_traits>

#include "wire/bytes.h"
#include "wire/message.h"

namespace far::server {

static_assert(std::has_unique_object_representations_v<direct_calls>);

void encode(const direct_calls& from, std::span<std::byte, direct_calls_bytes> to) {
  std::memcpy(to.data(), &from, sizeof from);
  wire::store(wire::checksum(to.first<sizeof from>()), to.data() + sizeof from);
}

std::optional<direct_calls> decode_direct_calls(std::span<const std::byte, direct_calls_bytes> from) {
  direct_calls calls;
  if (wire::load<std::uint64_t>(from.data() + sizeof calls) != wire::checksum(from.first<sizeof calls>())) {
    return std::nullopt;
  }
  std::memcpy(&calls, from.data(), sizeof calls);
  return calls;
}

}  // namespace far::server
