#include "backend/redis/redis_uri.h"

#include <algorithm>
#include <cerrno>

#include "base/units.h"
#include "wire/handshake.h"

namespace far::backend {
namespace {

constexpr std::uint64_t shortest_lease_ns = 1'000'000'000;
constexpr std::uint64_t longest_lease_ns = 30 * std::uint64_t{24} * 3'600'000'000'000;
constexpr std::uint64_t most_databases = 1'000'000;
constexpr std::size_t most_prefix_bytes = 64;

// Whether no character has a special meaning in a key, or in an ACL's pattern for keys.
bool is_prefix(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_' || c == ':';
  };
  return !text.empty() && text.size() <= most_prefix_bytes && std::all_of(text.begin(), text.end(), allowed);
}

result<void> parse_identity(const uri& name, redis_options* into) {
  into->tls = name.scheme().starts_with("rediss");
  into->user = name.text_value("user").value_or("");
  into->password_file = name.file("password-file").value_or("");
  into->authority_file = name.file("ca").value_or("");
  if (!into->user.empty() && into->password_file.empty()) {
    return wrong_name(name, "option 'user' takes a password; add password-file=FILE");
  }
  if (!into->tls && !into->authority_file.empty()) {
    const std::string secure = "rediss" + name.scheme().substr(std::string_view("redis").size()) + "://";
    return wrong_name(name, "option 'ca' has no effect without TLS; write " + secure);
  }
  into->prefix = name.text_value("prefix").value_or(into->prefix);
  if (!is_prefix(into->prefix)) {
    return wrong_name(name, "option 'prefix': a prefix has 1 to " + std::to_string(most_prefix_bytes) +
                                " letters, digits, '-', '_', '.' and ':'");
  }
  const auto database = name.whole_number("db", 0, most_databases);
  if (!database) return database.error();
  into->database = database.value().value_or(0);
  return {};
}

result<void> parse_lease(const uri& name, redis_options* into) {
  const auto lease = name.duration_ns("lease");
  if (!lease) return lease.error();
  into->lease_ns = lease.value().value_or(into->lease_ns);
  if (into->lease_ns < shortest_lease_ns || into->lease_ns > longest_lease_ns) {
    return wrong_name(name, "option 'lease' is between a second and 30 days; write for example lease=300s");
  }
  return {};
}

}  // namespace

result<tcp_endpoint> parse_redis_endpoint(std::string_view text) {
  const bool has_port =
      text.starts_with('[') ? text.find("]:") != std::string_view::npos : text.find(':') != std::string_view::npos;
  result<tcp_endpoint> server =
      parse_tcp_endpoint(has_port ? std::string(text) : std::string(text) + ":" + std::to_string(usual_redis_port));
  if (server) return server;
  return error{"'" + std::string(text) + "' is not HOST or HOST:PORT; write for example cache1:6379", EINVAL};
}

result<redis_name> parse_redis(const uri& name) {
  const result<void> known = name.allow_options({"copies", "min-copies", "prefix", "user", "password-file", "db", "ca",
                                                 "connections", "timeout", "patience", "scrub", "lease", "capacity"});
  if (!known) return known.error();
  if (name.rest().find('@') != std::string::npos) {
    return wrong_name(name, "a password in a name can be read by others; write user=NAME&password-file=FILE instead");
  }
  result<std::vector<tcp_endpoint>> servers =
      parse_servers(name, parse_redis_endpoint, name.scheme() + "://cache1:6379");
  if (!servers) return servers.error();
  redis_name parsed{std::move(servers).value(), {}};
  const bool is_cluster = name.scheme().ends_with("+cluster");
  if (const result<void> identity = parse_identity(name, &parsed.options); !identity) return identity.error();
  if (is_cluster && parsed.options.database != 0) {
    return wrong_name(name, "a Redis Cluster has the database 0 only; leave 'db' out");
  }
  // The masters of a cluster are not known yet.
  const std::size_t most_copies = is_cluster ? most_servers : parsed.servers.size();
  const result<void> options = parse_store_options(name, most_copies, &parsed.options);
  if (!options) return options.error();
  if (const result<void> lease = parse_lease(name, &parsed.options); !lease) return lease.error();
  return parsed;
}

result<std::string> read_password_file(const std::string& path) {
  return wire::read_secret_file({.secret = "password file",
                                 .least_bytes = 1,
                                 .if_too_short = "its first line is empty; write the password there"},
                                path);
}

}  // namespace far::backend
