#include "backend/redis/server_facts.h"

#include <algorithm>
#include <charconv>
#include <span>

namespace far::backend {
namespace {

std::uint64_t number_of(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

void copy_text(std::string_view from, std::span<char> into) {
  const std::size_t length = std::min(from.size(), into.size() - 1);
  std::copy_n(from.data(), length, into.data());
  into[length] = '\0';
}

void take_line(std::string_view key, std::string_view value, server_facts* into) {
  if (key == "run_id") copy_text(value, into->run_id.text);
  if (key == "master_replid") copy_text(value, into->history.text);
  if (key == "master_replid2") copy_text(value, into->former_history.text);
  if (key == "role") into->is_replica = value != "master";
  if (key == "cluster_enabled") into->is_cluster_node = value == "1";
  if (key == "loading") into->is_loading = value == "1";
  if (key == "maxmemory_policy") copy_text(value, into->policy);
  if (key == "maxmemory") into->maxmemory_bytes = number_of(value);
  if (key == "used_memory") into->used_bytes = number_of(value);
  if (key == "total_system_memory") into->system_bytes = number_of(value);
}

}  // namespace

server_facts server_facts::parse(std::string_view info) {
  server_facts facts;
  while (!info.empty()) {
    const std::size_t end = std::min(info.find('\n'), info.size());
    std::string_view line = info.substr(0, end);
    info.remove_prefix(std::min(end + 1, info.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos) take_line(line.substr(0, colon), line.substr(colon + 1), &facts);
  }
  // Written as zeros: there is none.
  constexpr std::string_view none = "0000000000000000000000000000000000000000";
  if (facts.former_history.text.data() == none) facts.former_history = {};
  facts.may_evict = facts.maxmemory_bytes != 0 && std::string_view(facts.policy.data()) != "noeviction";
  return facts;
}

std::string server_facts::objection(bool in_cluster) const {
  if (!run_id.is_known()) return "it does not tell its run_id (INFO server); is it Redis or Valkey?";
  if (is_replica) return "it is a replica, which takes no writes; name its master";
  if (is_cluster_node && !in_cluster)
    return "it is a node of a Redis Cluster; write redis+cluster: instead of redis:, or rediss+cluster: with TLS";
  if (may_evict) {
    return "it may evict what is stored there: its maxmemory-policy is '" + std::string(policy.data()) +
           "'. Give it the policy noeviction (CONFIG SET maxmemory-policy noeviction), or use another server";
  }
  return "";
}

std::uint64_t server_facts::room_bytes() const {
  const std::uint64_t limit = maxmemory_bytes != 0 ? maxmemory_bytes : system_bytes;
  return limit - std::min(limit, used_bytes);
}

}  // namespace far::backend
