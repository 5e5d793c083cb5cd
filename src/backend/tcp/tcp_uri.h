// `tcp://HOST:PORT[,HOST:PORT...][?OPTIONS]`, as users write it, taken apart.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/uri.h"
#include "base/result.h"
#include "base/units.h"

namespace far::backend {

// A memory server. `host` is a name, an IPv4 address, or an IPv6 address without its brackets.
struct tcp_endpoint {
  std::string host;
  std::uint16_t port = 0;

  bool operator==(const tcp_endpoint&) const = default;

  // "cache1:7070", "[::1]:7070".
  [[nodiscard]] std::string text() const;
};

inline constexpr std::uint64_t most_tcp_servers = 64;
inline constexpr std::uint64_t most_tcp_connections = 16;

// Everything but the list of servers; the same for each.
struct tcp_options {
  std::uint64_t copies = 1;
  std::string token_file;  // empty: no token
  bool tls = false;
  std::string authority_file;  // empty: the authorities that the system trusts
  std::uint64_t connections = 2;
  std::string tenant = "default";
  std::uint64_t timeout_ns = 10'000'000'000;
  std::uint64_t patience_ns = 0;  // of reads, for servers that do not answer; 0: as long as their leases live
  std::uint64_t scrubbed_pages_per_second = 0;
  std::uint64_t capacity_bytes = 0;  // of each server; 0: what it lends
};

struct tcp_name {
  std::vector<tcp_endpoint> servers;
  tcp_options options;
};

// "cache1:7070", "[::1]:7070". Errors: anything else.
[[nodiscard]] result<tcp_endpoint> parse_tcp_endpoint(std::string_view text);

// Option `scrub`, bytes a second, of every kind of server, in pages; 0 when it is not given. Errors: no size, or one
// copy.
[[nodiscard]] result<std::uint64_t> parse_scrub(const uri& name, std::size_t copies);

// Option `patience`, of every kind of server; 0 when it is not given. Errors: no duration, or none at all.
[[nodiscard]] result<std::uint64_t> parse_patience(const uri& name);

// Option `copies`, of every kind of server; 1 when it is not given. Errors: no number, or more copies than servers.
[[nodiscard]] result<std::uint64_t> parse_copies(const uri& name, std::size_t servers);

// Errors: no server, a server without port, one given twice, an unknown option or one without sense, more copies than
// servers. They say what to write instead.
[[nodiscard]] result<tcp_name> parse_tcp(const uri& name);

}  // namespace far::backend
