// The memory of a range of slots: one extent, or several when the range crosses blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/units.h"
#include "server/store.h"
#include "wire/message.h"

namespace far::server {

// Calls `use` with each extent in order. Stops and returns false at the first one whose slots the session has not
// allocated. Requires: a decoder of wire/message.h has accepted the range; the caller is between two quiescent states.
template <typename Use>
[[nodiscard]] bool for_each_extent(const session& client, const wire::range& where, Use use) {
  std::uint64_t slot = where.slot;
  std::uint64_t offset_bytes = where.offset_bytes;
  std::uint64_t left_bytes = where.length_bytes;
  while (left_bytes > 0) {
    std::byte* const begin = client.address_of(slot);
    if (begin == nullptr) return false;
    const std::uint64_t room = block_bytes - slot % wire::block_slots * page_bytes - offset_bytes;
    const std::uint64_t length_bytes = std::min(left_bytes, room);
    use(std::span<std::byte>(begin + offset_bytes, length_bytes));
    left_bytes -= length_bytes;
    slot += wire::block_slots - slot % wire::block_slots;
    offset_bytes = 0;
  }
  return true;
}

}  // namespace far::server
