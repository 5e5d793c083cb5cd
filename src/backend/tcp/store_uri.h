// The parts that names of far tiers over a network share: their servers, and options that mean the same for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/uri.h"
#include "base/result.h"

namespace far::backend {

// A memory server. `host` is a name, an IPv4 address, or an IPv6 address without its brackets.
struct tcp_endpoint {
  std::string host;
  std::uint16_t port = 0;

  bool operator==(const tcp_endpoint&) const = default;

  // "cache1:7070", "[::1]:7070".
  [[nodiscard]] std::string text() const;
};

// Pages are stored in rows of so many, and so many pages of parity.
struct parity_choice {
  std::uint64_t data = 0;  // 0: no parity
  std::uint64_t parity = 0;
};

// Options that are the same for each server of a name.
struct store_options {
  std::uint64_t copies = 1;
  parity_choice parity;
  std::uint64_t least_copies = 1;  // that a page must have before it leaves local memory
  // The zone of each server, in their order; empty: each is a zone of its own.
  std::vector<std::string> zones;
  bool are_zones_hosts = false;
  bool tls = false;
  std::string authority_file;  // empty: the authorities that the system trusts
  std::uint64_t connections = 2;
  std::uint64_t timeout_ns = 10'000'000'000;
  std::uint64_t patience_ns = 0;  // of reads, for servers that do not answer; 0: as long as their leases live
  std::uint64_t scrubbed_pages_per_second = 0;
  std::uint64_t capacity_bytes = 0;  // of each server; 0: all that it lends

  // Whether the bytes of a server that is gone can be had from others.
  [[nodiscard]] bool is_redundant() const { return copies > 1 || parity.data > 0; }
};

inline constexpr std::uint64_t most_servers = 64;
inline constexpr std::uint64_t most_connections = 16;

// EINVAL, with the name and the reason.
[[nodiscard]] error wrong_name(const uri& name, const std::string& why);

// "cache1:7070", "[::1]:7070". Errors: anything else.
[[nodiscard]] result<tcp_endpoint> parse_tcp_endpoint(std::string_view text);

// The servers of `//SERVER[,SERVER...]`. `parse`: one of them; `example`: a name to write instead. Errors: no server,
// one that `parse` refuses, one given twice, too many.
using endpoint_parser = result<tcp_endpoint>(std::string_view text);
[[nodiscard]] result<std::vector<tcp_endpoint>> parse_servers(const uri& name, endpoint_parser* parse,
                                                              std::string_view example);

// The option `zone`: "host", or the zone of each server. Errors: without copies or parity, as many names as servers, or
// as many zones as copies or pages of a row. Requires: parse_store_options() has read the others.
[[nodiscard]] result<void> parse_zones(const uri& name, const std::vector<tcp_endpoint>& servers, store_options* into);

// The zone of a server that is added: that of a server on its host, or else a zone of its own; empty: there are none.
[[nodiscard]] std::string zone_of_added(const tcp_endpoint& added, const std::vector<tcp_endpoint>& servers,
                                        const store_options& chosen);

// Options `copies`, `min-copies`, `parity`, `connections`, `timeout`, `patience`, `scrub` and `capacity`. Errors:
// values out of their bounds, more copies than servers, longer rows than there are servers, copies and parity,
// scrubbing with neither. Each kind of far tier asks for TLS in its own way.
[[nodiscard]] result<void> parse_store_options(const uri& name, std::size_t servers, store_options* into);

}  // namespace far::backend
