#include "backend/replicated/placement.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace far::backend {
namespace {

constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

// A bijection of 64 bits in which every input bit changes about half of the output bits.
constexpr std::uint64_t mix(std::uint64_t value) {
  value ^= value >> 32;
  value *= 0xd6e8feb86659fd93u;
  value ^= value >> 32;
  value *= 0xd6e8feb86659fd93u;
  return value ^ (value >> 32);
}

}  // namespace

std::uint64_t hash_of_name(std::string_view name) {
  std::uint64_t hash = mix(name.size() + 1);
  for (const char letter : name) hash = mix(hash + static_cast<unsigned char>(letter) + 1);
  return hash;
}

std::uint64_t weight(std::uint64_t name_hash, std::uint64_t group) {
  return mix(name_hash ^ mix(group + 0x9e3779b97f4a7c15u));
}

member_order order_for(std::span<const std::uint64_t> name_hashes, std::uint64_t group) {
  FAR_CHECK(name_hashes.size() <= maximum_members, "more members than a layer can hold");
  member_order order;
  std::array<std::uint64_t, maximum_members> weights{};
  for (std::size_t i = 0; i < name_hashes.size(); ++i) {
    const std::uint64_t added = weight(name_hashes[i], group);
    std::size_t at = order.count++;
    for (; at > 0 && weights[at - 1] < added; --at) {
      weights[at] = weights[at - 1];
      order.members[at] = order.members[at - 1];
    }
    weights[at] = added;
    order.members[at] = static_cast<std::uint8_t>(i);
  }
  return order;
}

// G groups fit when each member, lending at most G, together lends copies * G.
std::uint64_t placeable_groups(std::span<const std::uint64_t> room, std::size_t copies) {
  FAR_CHECK(copies > 0, "a group has copies");
  const auto fits = [&](std::uint64_t groups) {
    std::uint64_t lent = 0;
    for (const std::uint64_t free_slots : room) lent += std::min(free_slots, groups);
    return lent >= groups * copies;
  };
  std::uint64_t limited = 0;
  std::size_t unlimited = 0;
  for (const std::uint64_t free_slots : room) {
    if (free_slots == no_limit) ++unlimited;
    if (free_slots != no_limit) limited += free_slots;
  }
  if (unlimited >= copies) return no_limit;
  // Unlimited members hold a copy of every group; the others hold the rest.
  std::uint64_t low = 0;
  std::uint64_t high = limited;
  while (low < high) {
    const std::uint64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace far::backend
