#include "backend/redis/redis_uri.h"

#include <algorithm>
#include <cerrno>

#include "base/units.h"
#include "wire/handshake.h"

namespace far::backend {
namespace {

constexpr std::uint64_t default_timeout_with_copies_ns = 2'000'000'000;
constexpr std::uint64_t shortest_timeout_ns = 10'000'000;
constexpr std::uint64_t longest_timeout_ns = 3'600'000'000'000;
constexpr std::uint64_t shortest_lease_ns = 1'000'000'000;
constexpr std::uint64_t longest_lease_ns = 30 * std::uint64_t{24} * longest_timeout_ns;
constexpr std::uint64_t most_databases = 1'000'000;
constexpr std::size_t most_prefix_bytes = 64;

error wrong(const uri& name, const std::string& why) {
  return {"far tier '" + name.text() + "': " + why, EINVAL};
}

result<std::vector<tcp_endpoint>> parse_servers(const uri& name) {
  const std::string example = "write for example " + name.scheme() + "://cache1:6379";
  std::string_view list = name.rest();
  if (!list.starts_with("//") || list.size() == 2) return wrong(name, "it names no server; " + example);
  list.remove_prefix(2);
  if (list.find('@') != std::string_view::npos) {
    return wrong(name, "a password in a name can be read by others; write user=NAME&password-file=FILE instead");
  }
  std::vector<tcp_endpoint> servers;
  while (true) {
    const std::size_t comma = list.find(',');
    const result<tcp_endpoint> server = parse_redis_endpoint(list.substr(0, comma));
    if (!server) return wrong(name, server.error().message);
    if (std::find(servers.begin(), servers.end(), server.value()) != servers.end()) {
      return wrong(name, "server " + server.value().text() + " is given twice; keep one of them");
    }
    servers.push_back(server.value());
    if (servers.size() > most_tcp_servers) {
      return wrong(name, "more than " + std::to_string(most_tcp_servers) + " servers; name fewer, larger ones");
    }
    if (comma == std::string_view::npos) return servers;
    list.remove_prefix(comma + 1);
  }
}

// Whether no character has a special meaning in a key, or in an ACL's pattern for keys.
bool is_prefix(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_' || c == ':';
  };
  return !text.empty() && text.size() <= most_prefix_bytes && std::all_of(text.begin(), text.end(), allowed);
}

result<void> parse_identity(const uri& name, redis_options* into) {
  into->tls = name.scheme() == "rediss";
  into->user = name.text_value("user").value_or("");
  into->password_file = name.text_value("password-file").value_or("");
  into->authority_file = name.text_value("ca").value_or("");
  if (!into->user.empty() && into->password_file.empty()) {
    return wrong(name, "option 'user' takes a password; add password-file=FILE");
  }
  if (!into->tls && !into->authority_file.empty()) {
    return wrong(name, "option 'ca' has no effect without TLS; write rediss:// instead of redis://");
  }
  into->prefix = name.text_value("prefix").value_or(into->prefix);
  if (!is_prefix(into->prefix)) {
    return wrong(name, "option 'prefix': a prefix has 1 to " + std::to_string(most_prefix_bytes) +
                           " letters, digits, '-', '_', '.' and ':'");
  }
  const auto database = name.whole_number("db", 0, most_databases);
  if (!database) return database.error();
  into->database = database.value().value_or(0);
  return {};
}

result<void> parse_times(const uri& name, redis_options* into) {
  const auto timeout = name.duration_ns("timeout");
  if (!timeout) return timeout.error();
  // Where another server has the bytes, a silent one is not waited for long.
  into->timeout_ns = timeout.value().value_or(into->copies > 1 ? default_timeout_with_copies_ns : into->timeout_ns);
  if (into->timeout_ns < shortest_timeout_ns || into->timeout_ns > longest_timeout_ns) {
    return wrong(name, "option 'timeout' is between " + format_duration(shortest_timeout_ns) +
                           " and an hour; write for example timeout=10s");
  }
  const auto lease = name.duration_ns("lease");
  if (!lease) return lease.error();
  into->lease_ns = lease.value().value_or(into->lease_ns);
  if (into->lease_ns < shortest_lease_ns || into->lease_ns > longest_lease_ns) {
    return wrong(name, "option 'lease' is between a second and 30 days; write for example lease=300s");
  }
  const result<std::uint64_t> patience = parse_patience(name);
  if (!patience) return patience.error();
  into->patience_ns = patience.value();
  const result<std::uint64_t> scrub = parse_scrub(name, into->copies);
  if (!scrub) return scrub.error();
  into->scrubbed_pages_per_second = scrub.value();
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
  const result<void> known = name.allow_options({"copies", "prefix", "user", "password-file", "db", "ca", "connections",
                                                 "timeout", "patience", "scrub", "lease", "capacity"});
  if (!known) return known.error();
  result<std::vector<tcp_endpoint>> servers = parse_servers(name);
  if (!servers) return servers.error();
  redis_name parsed{std::move(servers).value(), {}};
  redis_options& into = parsed.options;
  if (const result<void> identity = parse_identity(name, &into); !identity) return identity.error();
  const result<std::uint64_t> copies = parse_copies(name, parsed.servers.size());
  if (!copies) return copies.error();
  into.copies = copies.value();
  const auto connections = name.whole_number("connections", 1, most_tcp_connections);
  if (!connections) return connections.error();
  into.connections = connections.value().value_or(into.connections);
  if (const result<void> times = parse_times(name, &into); !times) return times.error();
  const auto capacity = name.size_bytes("capacity");
  if (!capacity) return capacity.error();
  into.capacity_bytes = capacity.value().value_or(0);
  return parsed;
}

result<std::string> read_password_file(const std::string& path) {
  return wire::read_secret_file({.secret = "password file",
                                 .least_bytes = 1,
                                 .if_too_short = "its first line is empty; write the password there"},
                                path);
}

}  // namespace far::backend
