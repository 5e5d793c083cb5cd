#include "backend/redis/open_redis.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "backend/redis/redis_backend.h"
#include "backend/redis/redis_uri.h"
#include "backend/replicated/replicated_backend.h"
#include "base/log.h"

namespace far::backend {
namespace {

// The user who adds a server waits for an answer.
constexpr std::uint64_t longest_addition_ns = 10'000'000'000;

// With copies a server that is missing at the start, or dies while we connect, is like one that is lost: it takes part
// when it comes. One that refuses us is no such case.
result<std::unique_ptr<backend>> open_member(const tcp_endpoint& server, const redis_options& chosen,
                                             const redis_trust& trust) {
  result<std::unique_ptr<backend>> opened = redis_backend::open(server, chosen, trust);
  if (opened || chosen.copies == 1 || !is_unreachable(opened.error().code)) return opened;
  result<std::unique_ptr<backend>> later = redis_backend::open_later(server, chosen, trust);
  if (later) {
    log_line(log_level::warning, "%s. Going on without it; it is used as soon as it answers",
             opened.error().message.c_str());
  }
  return later;
}

}  // namespace

result<std::unique_ptr<backend>> open_redis(const uri& name) {
  const result<redis_name> parsed = parse_redis(name);
  if (!parsed) return parsed.error();
  redis_options chosen = parsed.value().options;
  // The memory of a server is cut into groups of slots.
  chosen.capacity_bytes = round_up(chosen.capacity_bytes, group_slots * page_bytes);
  const result<redis_trust> trust = redis_trust::load(chosen);
  if (!trust) return trust.error();
  std::vector<std::unique_ptr<backend>> members;
  replicated_options together;
  for (const tcp_endpoint& server : parsed.value().servers) {
    result<std::unique_ptr<backend>> opened = open_member(server, chosen, trust.value());
    if (!opened) return opened.error();
    members.push_back(std::move(opened).value());
    together.names.push_back(server.text());
  }
  if (std::none_of(members.begin(), members.end(), [](const auto& member) { return member->answers(); })) {
    return error{"far tier '" + name.text() +
                     "': none of its servers answers; check the addresses, the network, and that Redis runs there",
                 ETIMEDOUT};
  }
  together.copies = chosen.copies;
  together.lost_after_ns = chosen.timeout_ns;
  together.connect = [chosen, trust = trust.value()](std::string_view server) -> result<named_backend> {
    const result<tcp_endpoint> endpoint = parse_redis_endpoint(server);
    if (!endpoint) return endpoint.error();
    result<std::unique_ptr<backend>> opened = redis_backend::open(endpoint.value(), chosen, trust, longest_addition_ns);
    if (!opened) return opened.error();
    return named_backend{std::move(opened).value(), endpoint.value().text()};
  };
  result<std::unique_ptr<replicated_backend>> layer = replicated_backend::create(std::move(members), together);
  if (!layer) return layer.error();
  return std::unique_ptr<backend>(std::move(layer).value());
}

}  // namespace far::backend
