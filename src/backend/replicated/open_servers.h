// A far tier of one server, or of several under the layer that stripes and copies, for every protocol.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/replicated/replicated_backend.h"
#include "backend/striped/striped_backend.h"
#include "backend/uri.h"
#include "base/log.h"
#include "base/result.h"

namespace far::backend {

// The user who adds a server waits for an answer.
inline constexpr std::uint64_t longest_addition_ns = 10'000'000'000;

// With copies or parity, a server that is missing at the start, or dies while we connect, counts as lost, and takes
// part when it comes. A server that refuses us does not.
template <typename Kind>
[[nodiscard]] result<std::unique_ptr<backend>> open_member(const typename Kind::endpoint& server,
                                                           const typename Kind::options& chosen,
                                                           const typename Kind::trust& trust) {
  result<std::unique_ptr<backend>> opened = Kind::server::open(server, chosen, trust);
  if (opened || !chosen.is_redundant() || !is_unreachable(opened.error().code)) return opened;
  result<std::unique_ptr<backend>> later = Kind::server::open_later(server, chosen, trust);
  if (later) {
    log_line(log_level::warning, "%s. Going on without it; it is used as soon as it answers",
             opened.error().message.c_str());
  }
  return later;
}

// The layer's part of the options of its servers.
template <typename Layer, typename Options>
[[nodiscard]] Layer layer_options(const Options& chosen) {
  Layer together;
  together.copies = chosen.copies;
  together.least_copies = chosen.least_copies;
  together.lost_after_ns = chosen.timeout_ns;
  together.patience_ns = chosen.patience_ns;
  together.scrubbed_pages_per_second = chosen.scrubbed_pages_per_second;
  together.zones = chosen.zones;
  return together;
}

// `Kind` names what the servers of a kind have: endpoint, options, trust, server (the backend of one), parse(),
// parse_endpoint(), and `program`, what runs there. Blocks until every server has answered, each for up to the timeout.
// Errors name the server.
template <typename Kind>
[[nodiscard]] result<std::unique_ptr<backend>> open_servers(const uri& name) {
  const auto parsed = Kind::parse(name);
  if (!parsed) return parsed.error();
  typename Kind::options chosen = parsed.value().options;
  // The memory of a server is cut into groups of slots.
  chosen.capacity_bytes = round_up(chosen.capacity_bytes, group_slots * page_bytes);
  const auto trust = Kind::trust::load(chosen);
  if (!trust) return trust.error();
  std::vector<std::unique_ptr<backend>> members;
  auto together = layer_options<striped_options>(chosen);
  for (const typename Kind::endpoint& server : parsed.value().servers) {
    result<std::unique_ptr<backend>> opened = open_member<Kind>(server, chosen, trust.value());
    if (!opened) return opened.error();
    members.push_back(std::move(opened).value());
    together.names.push_back(server.text());
  }
  if (std::none_of(members.begin(), members.end(), [](const auto& member) { return member->answers(); })) {
    return error{"far tier '" + name.text() +
                     "': none of its servers answers; check the addresses, the network, and that " + Kind::program +
                     " runs there",
                 ETIMEDOUT};
  }
  together.connect = [chosen, servers = parsed.value().servers,
                      trust = trust.value()](std::string_view server) -> result<named_backend> {
    const auto endpoint = Kind::parse_endpoint(server);
    if (!endpoint) return endpoint.error();
    result<std::unique_ptr<backend>> opened = Kind::server::open(endpoint.value(), chosen, trust, longest_addition_ns);
    if (!opened) return opened.error();
    return named_backend{std::move(opened).value(), endpoint.value().text(),
                         zone_of_added(endpoint.value(), servers, chosen)};
  };
  if (chosen.parity.data > 0) {
    together.shape = {.data = chosen.parity.data, .parity = chosen.parity.parity};
    result<std::unique_ptr<striped_backend>> layer = striped_backend::create(std::move(members), together);
    if (!layer) return layer.error();
    return std::unique_ptr<backend>(std::move(layer).value());
  }
  result<std::unique_ptr<replicated_backend>> layer = replicated_backend::create(std::move(members), together);
  if (!layer) return layer.error();
  return std::unique_ptr<backend>(std::move(layer).value());
}

}  // namespace far::backend
