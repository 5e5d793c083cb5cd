// `redis://HOST[:PORT][,HOST[:PORT]...][?OPTIONS]` and `rediss://...`, as users write them, taken apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/tcp/tcp_uri.h"
#include "backend/uri.h"
#include "base/result.h"

namespace far::backend {

inline constexpr std::uint16_t usual_redis_port = 6379;

// Everything but the list of servers; the same for each.
struct redis_options {
  std::uint64_t copies = 1;
  std::string prefix = "farheap";  // keys begin with it
  std::string user;                // empty: the default user
  std::string password_file;       // empty: no password
  std::uint64_t database = 0;
  bool tls = false;            // rediss:
  std::string authority_file;  // empty: the authorities that the system trusts
  std::uint64_t connections = 2;
  std::uint64_t timeout_ns = 10'000'000'000;
  std::uint64_t patience_ns = 0;  // of reads, for servers that do not answer; 0: as long as the lease
  std::uint64_t scrubbed_pages_per_second = 0;
  std::uint64_t lease_ns = 300'000'000'000;
  std::uint64_t capacity_bytes = 0;  // of each server; 0: what it has room for
};

struct redis_name {
  std::vector<tcp_endpoint> servers;
  redis_options options;
};

// "cache1", "cache1:7070", "[::1]:7070". Errors: anything else.
[[nodiscard]] result<tcp_endpoint> parse_redis_endpoint(std::string_view text);

// Errors: no server, one given twice, an unknown option or one without sense, more copies than servers. They say what
// to write instead.
[[nodiscard]] result<redis_name> parse_redis(const uri& name);

// The first line of a file that nobody else may read. Errors say what to do; none of them holds the password.
[[nodiscard]] result<std::string> read_password_file(const std::string& path);

}  // namespace far::backend
