#include "backend/tcp/tcp_uri.h"

#include <utility>

#include "wire/handshake.h"

namespace far::backend {
namespace {

result<void> parse_trust(const uri& name, tcp_options* into) {
  into->token_file = name.file("token-file").value_or("");
  into->authority_file = name.file("ca").value_or("");
  const auto tls = name.flag("tls");
  if (!tls) return tls.error();
  into->tls = tls.value().value_or(false);
  if (!into->tls && !into->authority_file.empty()) {
    return wrong_name(name, "option 'ca' has no effect without TLS; add tls=1");
  }
  into->tenant = name.text_value("tenant").value_or(into->tenant);
  if (!wire::is_tenant_name(into->tenant)) {
    return wrong_name(name, "option 'tenant': a name has 1 to " + std::to_string(wire::maximum_tenant_bytes) +
                                " letters, digits, '-', '_' and '.'");
  }
  return {};
}

}  // namespace

result<tcp_name> parse_tcp(const uri& name) {
  const result<void> known =
      name.allow_options({"copies", "min-copies", "parity", "token-file", "tls", "ca", "connections", "tenant",
                          "timeout", "patience", "scrub", "capacity", "zone"});
  if (!known) return known.error();
  result<std::vector<tcp_endpoint>> servers =
      parse_servers(name, parse_tcp_endpoint, "tcp://cache1:7070 or tcp://10.0.0.1:7070,[fd00::2]:7070");
  if (!servers) return servers.error();
  tcp_name parsed{std::move(servers).value(), {}};
  if (const result<void> trust = parse_trust(name, &parsed.options); !trust) return trust.error();
  const result<void> options = parse_store_options(name, parsed.servers.size(), &parsed.options);
  if (!options) return options.error();
  if (const result<void> zones = parse_zones(name, parsed.servers, &parsed.options); !zones) return zones.error();
  return parsed;
}

}  // namespace far::backend
