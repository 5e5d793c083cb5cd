// A Redis Cluster as one of its nodes describes it: the reply to CLUSTER NODES, taken apart.
//
// One line a node:
//     ID HOST:PORT@BUS-PORT[,HOSTNAME] FLAGS MASTER-ID PING PONG EPOCH LINK
//     [SLOT|FIRST-LAST|[SLOT->-ID]|[SLOT-<-ID]]...
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace far::backend {

inline constexpr std::uint32_t cluster_slots = 16384;

// The hash slot of a key: CRC16 (XMODEM) of the part between its first '{' and the next '}', if there is one and it is
// not empty, or else of the whole key.
[[nodiscard]] std::uint32_t hash_slot_of(std::string_view key);

// Where a node listens. Fixed in size, because it is copied where nothing may be allocated.
struct node_address {
  std::array<char, 48> host{};   // an IPv4 or IPv6 address in digits; empty: unknown
  std::array<char, 208> name{};  // the host's name that a certificate may have; empty: none
  std::uint16_t port = 0;

  [[nodiscard]] bool is_known() const { return host[0] != '\0' && port != 0; }
  bool operator==(const node_address&) const = default;
  // "127.0.0.1:7000", "[::1]:7000".
  [[nodiscard]] std::string text() const;

  // "HOST:PORT", where HOST may be an IPv6 address without brackets, as in CLUSTER NODES and MOVED. Returns an unknown
  // one when it is anything else; an empty HOST stays empty.
  [[nodiscard]] static node_address parse(std::string_view text);
};

// The text is that of the reply.
struct cluster_node {
  std::string_view id;
  node_address address;
  bool is_self = false;
  bool is_master = false;
  bool has_failed = false;  // or may have: other nodes do not reach it
  std::string_view ranges;  // of hash slots

  [[nodiscard]] bool owns(std::uint32_t slot) const;
  [[nodiscard]] std::uint32_t slot_count() const;
  // The one of number `index` among those it owns. Requires: index < slot_count().
  [[nodiscard]] std::uint32_t slot_at(std::uint32_t index) const;
};

// Takes the first line off the text. Empty: none is left. A line that is not of the form above has no address and owns
// nothing.
[[nodiscard]] std::optional<cluster_node> next_node(std::string_view* text);

}  // namespace far::backend
