// `redis://HOST[:PORT][,HOST[:PORT]...][?OPTIONS]` and `rediss://...`, as users write them, taken apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/tcp/store_uri.h"

namespace far::backend {

inline constexpr std::uint16_t usual_redis_port = 6379;

struct redis_options : store_options {
  std::string prefix = "farheap";  // keys begin with it
  std::string user;                // empty: the default user
  std::string password_file;       // empty: no password
  std::uint64_t database = 0;
  std::uint64_t lease_ns = 300'000'000'000;
};

struct redis_name {
  std::vector<tcp_endpoint> servers;
  redis_options options;
};

// "cache1", "cache1:6379", "[::1]:6379". Errors: anything else.
[[nodiscard]] result<tcp_endpoint> parse_redis_endpoint(std::string_view text);

// Errors: no server, one given twice, an unknown option or one without sense, more copies than servers. They say what
// to write instead.
[[nodiscard]] result<redis_name> parse_redis(const uri& name);

// The first line of a file that nobody else may read. Errors say what to do; none of them holds the password.
[[nodiscard]] result<std::string> read_password_file(const std::string& path);

}  // namespace far::backend
