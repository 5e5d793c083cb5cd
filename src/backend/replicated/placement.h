// Chooses the members that should hold a group, by rendezvous hashing (Thaler and Ravishankar, "Using name-based
// mappings to increase hit rates", IEEE/ACM Transactions on Networking 6(1), 1998).
//
// Each member has a weight for each group, a hash of both; the members with the highest weights hold it. So groups
// spread evenly, there is no map that others must agree with, and a member that comes or goes concerns only the groups
// for which it is among the highest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace far::backend {

inline constexpr std::size_t maximum_members = 64;

// Stands for a member's name in weights.
[[nodiscard]] std::uint64_t hash_of_name(std::string_view name);

[[nodiscard]] std::uint64_t weight(std::uint64_t name_hash, std::uint64_t group);

// The members, as indices into `name_hashes`, from the highest weight for `group` to the lowest. Equal names are kept
// in the order given. Requires: at most maximum_members.
struct member_order {
  std::array<std::uint8_t, maximum_members> members{};
  std::size_t count = 0;

  [[nodiscard]] std::span<const std::uint8_t> all() const { return {members.data(), count}; }
};
[[nodiscard]] member_order order_for(std::span<const std::uint64_t> name_hashes, std::uint64_t group);

// How many groups fit with `copies` copies each on different members, when member i has room for `room[i]`: the most
// that any placement can reach. max() is "no limit".
[[nodiscard]] std::uint64_t placeable_groups(std::span<const std::uint64_t> room, std::size_t copies);

}  // namespace far::backend
