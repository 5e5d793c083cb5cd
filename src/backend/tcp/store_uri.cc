#include "backend/tcp/store_uri.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "base/units.h"

namespace far::backend {
namespace {

constexpr std::uint64_t most_data_pages = 8;
constexpr std::uint64_t most_parity_pages = 2;

constexpr std::uint64_t default_timeout_with_copies_ns = 2'000'000'000;
constexpr std::uint64_t shortest_timeout_ns = 10'000'000;
constexpr std::uint64_t longest_timeout_ns = 3'600'000'000'000;

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

result<std::uint64_t> parse_patience(const uri& name) {
  const auto patience = name.duration_ns("patience");
  if (!patience) return patience.error();
  if (patience.value() != 0u) return patience.value().value_or(0);
  return wrong_name(name,
                    "option 'patience' is how long reads wait for a server that does not answer; write for example "
                    "patience=30s, or leave it out: they wait as long as the server keeps the bytes");
}

result<std::uint64_t> parse_copies(const uri& name, std::size_t servers) {
  const auto given = name.whole_number("copies", 1, most_servers);
  if (!given) return given.error();
  const std::uint64_t copies = given.value().value_or(1);
  if (copies <= servers) return copies;
  return wrong_name(name, std::to_string(copies) + " copies need as many servers, and " + std::to_string(servers) +
                              " are named; add servers or lower 'copies'");
}

// "4+2".
std::optional<parity_choice> parse_shape(std::string_view text) {
  parity_choice parsed;
  const char* const end = text.data() + text.size();
  const auto [sign, failure] = std::from_chars(text.data(), end, parsed.data);
  if (failure != std::errc{} || sign == end || *sign != '+') return std::nullopt;
  const auto [rest, second_failure] = std::from_chars(sign + 1, end, parsed.parity);
  if (second_failure != std::errc{} || rest != end) return std::nullopt;
  return parsed;
}

result<parity_choice> parse_parity(const uri& name, std::size_t servers) {
  const std::optional<std::string> text = name.text_value("parity");
  if (!text) return parity_choice{};
  const std::optional<parity_choice> shape = parse_shape(*text);
  if (!shape || shape->data < 2 || shape->data > most_data_pages || shape->parity < 1 ||
      shape->parity > most_parity_pages) {
    return wrong_name(name, "option 'parity': '" + *text + "' is not DATA+PARITY with 2 to " +
                                std::to_string(most_data_pages) + " data pages and 1 or " +
                                std::to_string(most_parity_pages) + " of parity; write for example parity=2+1 or 4+2");
  }
  if (name.text_value("copies")) {
    return wrong_name(name, "options 'copies' and 'parity' are two ways to survive a server; keep one of them");
  }
  if (shape->data + shape->parity <= servers) return *shape;
  return wrong_name(name, "parity=" + *text + " needs " + std::to_string(shape->data + shape->parity) +
                              " servers, and " + std::to_string(servers) + " are named; add servers, or write a " +
                              "shorter row");
}

// In pages a second; 0 when it is not given.
result<std::uint64_t> parse_scrub(const uri& name, const store_options& parsed) {
  const auto bytes = name.size_bytes("scrub");
  if (!bytes) return bytes.error();
  if (!bytes.value()) return 0;
  if (!parsed.is_redundant()) {
    return wrong_name(name, "option 'scrub' compares copies, and there is one; leave it out, or write copies=2");
  }
  return std::max<std::uint64_t>(*bytes.value() / page_bytes, 1);
}

}  // namespace

result<void> parse_zones(const uri& name, const std::vector<tcp_endpoint>& servers, store_options* into) {
  const std::optional<std::string> text = name.text_value("zone");
  if (!text) return {};
  if (!into->is_redundant()) {
    return wrong_name(name, "option 'zone' keeps copies apart, and there is one; leave it out, or write copies=2");
  }
  into->are_zones_hosts = *text == "host";
  if (into->are_zones_hosts) {
    for (const tcp_endpoint& server : servers) into->zones.push_back(server.host);
  } else {
    for (std::string_view list = *text;; list.remove_prefix(list.find(',') + 1)) {
      const std::string_view zone = list.substr(0, list.find(','));
      if (!is_host(zone)) {
        return wrong_name(name, "option 'zone': '" + std::string(zone) +
                                    "' is no name of letters, digits, '.', '-' and '_'; write zone=host, or the zone "
                                    "of each server: zone=rack1,rack1,rack2");
      }
      into->zones.emplace_back(zone);
      if (list.find(',') == std::string_view::npos) break;
    }
    if (into->zones.size() != servers.size()) {
      return wrong_name(name, "option 'zone' names " + std::to_string(into->zones.size()) + " zones for " +
                                  std::to_string(servers.size()) + " servers; write one for each, in their order");
    }
  }
  const std::set<std::string_view> distinct(into->zones.begin(), into->zones.end());
  const std::uint64_t wanted = std::max(into->copies, into->parity.data + into->parity.parity);
  if (distinct.size() >= wanted) return {};
  return wrong_name(name, "option 'zone': the servers are in " + std::to_string(distinct.size()) + " zones, and " +
                              std::to_string(wanted) + " are needed, for each " +
                              (into->parity.data > 0 ? "page of a row" : "copy") +
                              " is in another one; add servers elsewhere, or leave 'zone' out");
}

std::string zone_of_added(const tcp_endpoint& added, const std::vector<tcp_endpoint>& servers,
                          const store_options& chosen) {
  if (chosen.zones.empty() || chosen.are_zones_hosts) return chosen.zones.empty() ? "" : added.host;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    if (servers[i].host == added.host) return chosen.zones[i];
  }
  return "host " + added.host;
}

error wrong_name(const uri& name, const std::string& why) {
  return {"far tier '" + name.text() + "': " + why, EINVAL};
}

std::string tcp_endpoint::text() const {
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

result<tcp_endpoint> parse_tcp_endpoint(std::string_view text) {
  std::optional<tcp_endpoint> server = parse_endpoint(text);
  if (server) return *std::move(server);
  return error{"'" + std::string(text) + "' is not HOST:PORT; write for example cache1:7070 or [fd00::2]:7070", EINVAL};
}

result<std::vector<tcp_endpoint>> parse_servers(const uri& name, endpoint_parser* parse, std::string_view example) {
  std::string_view list = name.rest();
  if (!list.starts_with("//") || list.size() == 2) {
    return wrong_name(name, "it names no server; write for example " + std::string(example));
  }
  list.remove_prefix(2);
  std::vector<tcp_endpoint> servers;
  while (true) {
    const std::size_t comma = list.find(',');
    result<tcp_endpoint> server = parse(list.substr(0, comma));
    if (!server) return wrong_name(name, server.error().message);
    if (std::find(servers.begin(), servers.end(), server.value()) != servers.end()) {
      return wrong_name(name, "server " + server.value().text() + " is given twice; keep one of them");
    }
    servers.push_back(std::move(server).value());
    if (servers.size() > most_servers) {
      return wrong_name(name, "more than " + std::to_string(most_servers) + " servers; name fewer, larger ones");
    }
    if (comma == std::string_view::npos) return servers;
    list.remove_prefix(comma + 1);
  }
}

result<void> parse_store_options(const uri& name, std::size_t servers, store_options* into) {
  const result<std::uint64_t> copies = parse_copies(name, servers);
  if (!copies) return copies.error();
  into->copies = copies.value();
  const result<parity_choice> parity = parse_parity(name, servers);
  if (!parity) return parity.error();
  into->parity = parity.value();
  const auto least = name.whole_number("min-copies", 1, into->copies);
  if (!least) return least.error();
  into->least_copies = least.value().value_or(into->least_copies);
  const auto connections = name.whole_number("connections", 1, most_connections);
  if (!connections) return connections.error();
  into->connections = connections.value().value_or(into->connections);
  const auto timeout = name.duration_ns("timeout");
  if (!timeout) return timeout.error();
  // Where another server has the bytes, a silent one is not waited for long.
  into->timeout_ns = timeout.value().value_or(into->is_redundant() ? default_timeout_with_copies_ns : into->timeout_ns);
  if (into->timeout_ns < shortest_timeout_ns || into->timeout_ns > longest_timeout_ns) {
    return wrong_name(name, "option 'timeout' is between " + format_duration(shortest_timeout_ns) +
                                " and an hour; write for example timeout=10s");
  }
  const result<std::uint64_t> patience = parse_patience(name);
  if (!patience) return patience.error();
  into->patience_ns = patience.value();
  const result<std::uint64_t> scrub = parse_scrub(name, *into);
  if (!scrub) return scrub.error();
  into->scrubbed_pages_per_second = scrub.value();
  const auto capacity = name.size_bytes("capacity");
  if (!capacity) return capacity.error();
  into->capacity_bytes = capacity.value().value_or(0);
  return {};
}

}  // namespace far::backend
