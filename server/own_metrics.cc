#include "server/own_metrics.h"

namespace far::server {
namespace {

// A server that has not checked its sessions for so long is stuck.
constexpr std::uint64_t stuck_ns = 10'000'000'000;

}  // namespace

std::string own_metrics::sickness(std::uint64_t now_ns) {
  const bool is_stuck = looked_after_at_ns_ != nullptr && now_ns > looked_after_at_ns_->load() + stuck_ns;
  return is_stuck ? "stuck: it has not looked after its sessions for 10 s" : "";
}

}  // namespace far::server
