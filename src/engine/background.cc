#include "engine/background.h"

#include <algorithm>

namespace far::engine {
namespace {

constexpr std::uint64_t idle_ns = 1'000'000'000;  // until woken
constexpr std::uint64_t busy_ns = 50'000;         // while transfers are under way
constexpr std::uint64_t watch_ns = 2'000'000;     // while others poll them
constexpr std::uint64_t stuck_ns = 10'000'000;    // while eviction is wanted and cannot go on
constexpr unsigned polls_before_pause = 50;

}  // namespace

std::uint64_t background::step() {
  const bool progress = work();
  const std::uint64_t now_ns = engine_.now_ns();
  if (now_ns >= tend_at_ns_ || engine_.tending().is_wanted()) {
    const engine_section inside(host_);
    const std::uint64_t until_next_ns = engine_.tending().tend();
    tend_at_ns_ = until_next_ns < backend::no_tending - now_ns ? now_ns + until_next_ns : backend::no_tending;
  }
  if (progress) {
    idle_polls_ = 0;
    return 0;
  }
  return pause_ns(now_ns);
}

bool background::work() {
  const engine_section inside(host_);
  const bool evicted = engine_.eviction().reclaim_in_background();
  const bool helped = engine_.transfers().help(caller::of_runtime);
  return evicted || helped;
}

std::uint64_t background::pause_ns(std::uint64_t now_ns) {
  const bool others_poll = host_.has_pollers();
  const bool has_left = engine_.transfers().has_left();
  const bool under_way = has_left || (others_poll ? engine_.transfers().under_way() : engine_.transfers().unattended());
  const bool is_awaited = !others_poll || has_left || engine_.eviction().wants_background();
  const bool waits_for_them = under_way && is_awaited;
  if (waits_for_them && ++idle_polls_ < polls_before_pause) return 0;
  idle_polls_ = 0;
  // The pollers may be asleep, because they do not know of transfers that were started here.
  if (under_way && !waits_for_them) host_.poll_soon();
  std::uint64_t longest_ns = engine_.eviction().wants_background() ? stuck_ns : idle_ns;
  if (under_way) longest_ns = waits_for_them ? busy_ns : watch_ns;
  return std::min(longest_ns, tend_at_ns_ - std::min(tend_at_ns_, now_ns));
}

}  // namespace far::engine
