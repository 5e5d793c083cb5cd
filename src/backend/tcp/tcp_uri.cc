#include "backend/tcp/tcp_uri.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include "wire/handshake.h"

namespace far::backend {
namespace {

constexpr std::uint64_t default_timeout_with_copies_ns = 2'000'000'000;
constexpr std::uint64_t shortest_timeout_ns = 10'000'000;
constexpr std::uint64_t longest_timeout_ns = 3'600'000'000'000;

error wrong(const uri& name, const std::string& why) {
  return {"far tier '" + name.text() + "': " + why, EINVAL};
}

bool is_host(std::string_view host) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  };
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), allowed);
}

// Checks the text between the brackets; `%eth0` names the interface of a link-local address.
bool is_ipv6(std::string_view host) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ':' || c == '.' ||
           c == '%';
  };
  return host.find(':') != std::string_view::npos && host.size() <= 64 &&
         std::all_of(host.begin(), host.end(), allowed);
}

std::optional<tcp_endpoint> parse_endpoint(std::string_view text) {
  std::string_view host;
  if (text.starts_with('[')) {
    const std::size_t bracket = text.find(']');
    if (bracket == std::string_view::npos) return std::nullopt;
    host = text.substr(1, bracket - 1);
    text = text.substr(bracket + 1);
    if (!is_ipv6(host) || !text.starts_with(':')) return std::nullopt;
  } else {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    host = text.substr(0, colon);
    text = text.substr(colon);
    if (!is_host(host)) return std::nullopt;
  }
  const std::string_view digits = text.substr(1);
  std::uint16_t port = 0;
  const char* const end = digits.data() + digits.size();
  const auto [rest, failure] = std::from_chars(digits.data(), end, port);
  if (failure != std::errc{} || rest != end || port == 0) return std::nullopt;
  return tcp_endpoint{std::string(host), port};
}

result<std::vector<tcp_endpoint>> parse_servers(const uri& name) {
  constexpr std::string_view example = "write for example tcp://cache1:7070 or tcp://10.0.0.1:7070,[fd00::2]:7070";
  std::string_view list = name.rest();
  if (!list.starts_with("//") || list.size() == 2) return wrong(name, "it names no server; " + std::string(example));
  list.remove_prefix(2);
  std::vector<tcp_endpoint> servers;
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view item = list.substr(0, comma);
    std::optional<tcp_endpoint> server = parse_endpoint(item);
    if (!server) return wrong(name, "'" + std::string(item) + "' is not HOST:PORT; " + std::string(example));
    if (std::find(servers.begin(), servers.end(), *server) != servers.end()) {
      return wrong(name, "server " + server->text() + " is given twice; keep one of them");
    }
    servers.push_back(*std::move(server));
    if (servers.size() > most_tcp_servers) {
      return wrong(name, "more than " + std::to_string(most_tcp_servers) + " servers; name fewer, larger ones");
    }
    if (comma == std::string_view::npos) return servers;
    list = list.substr(comma + 1);
  }
}

result<void> parse_trust(const uri& name, tcp_options* into) {
  into->token_file = name.text_value("token-file").value_or("");
  into->authority_file = name.text_value("ca").value_or("");
  const auto tls = name.flag("tls");
  if (!tls) return tls.error();
  into->tls = tls.value().value_or(false);
  if (!into->tls && !into->authority_file.empty()) {
    return wrong(name, "option 'ca' has no effect without TLS; add tls=1");
  }
  into->tenant = name.text_value("tenant").value_or(into->tenant);
  if (!wire::is_tenant_name(into->tenant)) {
    return wrong(name, "option 'tenant': a name has 1 to " + std::to_string(wire::maximum_tenant_bytes) +
                           " letters, digits, '-', '_' and '.'");
  }
  return {};
}

}  // namespace

std::string tcp_endpoint::text() const {
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

result<tcp_endpoint> parse_tcp_endpoint(std::string_view text) {
  std::optional<tcp_endpoint> server = parse_endpoint(text);
  if (server) return *std::move(server);
  return error{"'" + std::string(text) + "' is not HOST:PORT; write for example cache1:7070 or [fd00::2]:7070", EINVAL};
}

result<std::uint64_t> parse_patience(const uri& name) {
  const auto patience = name.duration_ns("patience");
  if (!patience) return patience.error();
  if (patience.value() != 0u) return patience.value().value_or(0);
  return wrong(name,
               "option 'patience' is how long reads wait for a server that does not answer; write for example "
               "patience=30s, or leave it out: they wait as long as the server keeps the bytes");
}

result<std::uint64_t> parse_copies(const uri& name, std::size_t servers) {
  const auto given = name.whole_number("copies", 1, most_tcp_servers);
  if (!given) return given.error();
  const std::uint64_t copies = given.value().value_or(1);
  if (copies <= servers) return copies;
  return wrong(name, std::to_string(copies) + " copies need as many servers, and " + std::to_string(servers) +
                         " are named; add servers or lower 'copies'");
}

result<std::uint64_t> parse_scrub(const uri& name, std::size_t copies) {
  const auto bytes = name.size_bytes("scrub");
  if (!bytes) return bytes.error();
  if (!bytes.value()) return 0;
  if (copies == 1) {
    return wrong(name, "option 'scrub' compares copies, and there is one; leave it out, or write copies=2");
  }
  return std::max<std::uint64_t>(*bytes.value() / page_bytes, 1);
}

result<tcp_name> parse_tcp(const uri& name) {
  const result<void> known = name.allow_options(
      {"copies", "token-file", "tls", "ca", "connections", "tenant", "timeout", "patience", "scrub", "capacity"});
  if (!known) return known.error();
  result<std::vector<tcp_endpoint>> servers = parse_servers(name);
  if (!servers) return servers.error();
  tcp_name parsed{std::move(servers).value(), {}};
  tcp_options& into = parsed.options;
  if (const result<void> trust = parse_trust(name, &into); !trust) return trust.error();
  const result<std::uint64_t> copies = parse_copies(name, parsed.servers.size());
  if (!copies) return copies.error();
  into.copies = copies.value();
  const auto connections = name.whole_number("connections", 1, most_tcp_connections);
  if (!connections) return connections.error();
  into.connections = connections.value().value_or(into.connections);
  const auto timeout = name.duration_ns("timeout");
  if (!timeout) return timeout.error();
  // Where another server has the bytes, a silent one is not waited for long.
  into.timeout_ns = timeout.value().value_or(into.copies > 1 ? default_timeout_with_copies_ns : into.timeout_ns);
  if (into.timeout_ns < shortest_timeout_ns || into.timeout_ns > longest_timeout_ns) {
    return wrong(name, "option 'timeout' is between " + format_duration(shortest_timeout_ns) +
                           " and an hour; write for example timeout=10s");
  }
  const result<std::uint64_t> patience = parse_patience(name);
  if (!patience) return patience.error();
  into.patience_ns = patience.value();
  const result<std::uint64_t> scrub = parse_scrub(name, into.copies);
  if (!scrub) return scrub.error();
  into.scrubbed_pages_per_second = scrub.value();
  const auto capacity = name.size_bytes("capacity");
  if (!capacity) return capacity.error();
  into.capacity_bytes = capacity.value().value_or(0);
  return parsed;
}

}  // namespace far::backend
