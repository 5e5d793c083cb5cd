#include "backend/redis/open_redis.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/redis/cluster_query.h"
#include "backend/redis/redis_backend.h"
#include "backend/redis/redis_uri.h"
#include "backend/replicated/open_servers.h"
#include "base/log.h"
#include "platform/clock.h"

namespace far::backend {
namespace {

struct redis_servers {
  using endpoint = tcp_endpoint;
  using options = redis_options;
  using trust = redis_trust;
  using server = redis_backend;
  static constexpr const char* program = "Redis";

  [[nodiscard]] static result<redis_name> parse(const uri& name) { return parse_redis(name); }
  [[nodiscard]] static result<tcp_endpoint> parse_endpoint(std::string_view text) { return parse_redis_endpoint(text); }
};

}  // namespace

result<std::unique_ptr<backend>> open_redis(const uri& name) {
  return open_servers<redis_servers>(name);
}

namespace {

constexpr std::uint64_t vacancy_pause_ns = 60'000'000'000;

// One that has failed and has no successor yet cannot take part; it does when somebody serves its hash slots.
std::vector<cluster_home> masters_in(const cluster_reply& reply, const std::shared_ptr<cluster_directory>& directory) {
  std::vector<cluster_home> homes;
  std::string_view left = reply.nodes;
  while (const std::optional<cluster_node> node = next_node(&left)) {
    if (!node->is_master || node->slot_count() == 0 || homes.size() == maximum_members) continue;
    cluster_home home{.directory = directory, .master = node->address, .slot = draw_slot(*node)};
    if (node->is_self && !home.master.is_known()) home.master = reply.from;
    homes.push_back(std::move(home));
  }
  return homes;
}

// Also what the layer places groups by: the slot is another one in each program, so programs differ in which master has
// most of their groups.
std::string name_of(const cluster_home& home) {
  return home.master.text() + " slot " + std::to_string(home.slot);
}

result<std::unique_ptr<backend>> open_part(const cluster_home& home, const redis_options& chosen,
                                           const redis_trust& trust) {
  result<std::unique_ptr<backend>> opened = redis_backend::open(home, chosen, trust);
  if (opened || chosen.copies == 1 || !is_unreachable(opened.error().code)) return opened;
  log_line(log_level::warning, "%s. Going on without it; its part is used as soon as a node serves it",
           opened.error().message.c_str());
  return redis_backend::open_later(home, chosen, trust);
}

}  // namespace

result<std::unique_ptr<backend>> open_redis_cluster(const uri& name) {
  const result<redis_name> parsed = parse_redis(name);
  if (!parsed) return parsed.error();
  redis_options chosen = parsed.value().options;
  chosen.capacity_bytes = round_up(chosen.capacity_bytes, group_slots * page_bytes);
  const result<redis_trust> trust = redis_trust::load(chosen);
  if (!trust) return trust.error();
  const result<cluster_reply> reply = ask_for_nodes(parsed.value().servers, chosen, trust.value());
  if (!reply) return reply.error();
  const auto directory = std::make_shared<cluster_directory>();
  const std::vector<cluster_home> homes = masters_in(reply.value(), directory);
  if (homes.size() < chosen.copies) {
    return wrong_name(name, std::to_string(chosen.copies) + " copies need as many masters, and the cluster has " +
                                std::to_string(homes.size()) + " with hash slots; add masters or lower 'copies'");
  }
  std::vector<std::unique_ptr<backend>> members;
  auto together = layer_options<replicated_options>(chosen);
  for (const cluster_home& home : homes) {
    result<std::unique_ptr<backend>> opened = open_part(home, chosen, trust.value());
    if (!opened) return opened.error();
    members.push_back(std::move(opened).value());
    together.names.push_back(name_of(home));
  }
  if (std::none_of(members.begin(), members.end(), [](const auto& member) { return member->answers(); })) {
    return wrong_name(name, "none of its masters answers; check the network, and CLUSTER INFO");
  }
  together.find_server = [chosen, trust = trust.value(), directory]() -> std::optional<named_backend> {
    static const platform::monotonic_clock time;
    const auto vacancy = directory->next_vacancy(time.now_ns(), vacancy_pause_ns);
    if (!vacancy) return std::nullopt;
    const cluster_home home{.directory = directory, .master = vacancy->master, .slot = vacancy->slot};
    result<std::unique_ptr<backend>> later = redis_backend::open_later(home, chosen, trust);
    if (!later) {
      log_line(log_level::error, "%s", later.error().message.c_str());
      return std::nullopt;
    }
    log_line(log_level::info, "far tier %s takes part as a master of its cluster", home.master.text().c_str());
    return named_backend{std::move(later).value(), name_of(home)};
  };
  result<std::unique_ptr<replicated_backend>> layer = replicated_backend::create(std::move(members), together);
  if (!layer) return layer.error();
  return std::unique_ptr<backend>(std::move(layer).value());
}

}  // namespace far::backend
