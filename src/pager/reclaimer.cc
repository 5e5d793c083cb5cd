#include "pager/reclaimer.h"

#include <algorithm>
#include <utility>

#include "platform/runtime_thread.h"

namespace far::pager {
namespace {

constexpr std::uint64_t idle_sleep_ns = 1'000'000'000;  // until woken
constexpr std::uint64_t busy_sleep_ns = 50'000;         // while transfers are under way
constexpr std::uint64_t watch_sleep_ns = 2'000'000;     // while others poll them
constexpr std::uint64_t stuck_sleep_ns = 10'000'000;    // while eviction is wanted and cannot go on
constexpr std::uint64_t settling_ns = idle_sleep_ns;    // no wake-up more for it
constexpr unsigned polls_before_sleep = 50;

}  // namespace

void reclaimer::start() {
  stopping_.store(false);
  thread_ = platform::start_runtime_thread("farheap-evict", [this] { run(); });
}

void reclaimer::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  waker_.wake();
  thread_.join();
}

void reclaimer::run() {
  unsigned idle_polls = 0;
  std::uint64_t tend_at_ns = 0;
  const std::uint64_t settled_at_ns = clock_.now_ns() + settling_ns;
  while (!stopping_.load(std::memory_order_relaxed)) {
    bool progress = engine_.reclaim_in_background();
    progress |= engine_.help(engine::caller::of_runtime);
    const std::uint64_t now_ns = clock_.now_ns();
    if (settled_ && now_ns >= settled_at_ns) std::exchange(settled_, nullptr)();
    if (now_ns >= tend_at_ns || engine_.wants_tending()) {
      const std::uint64_t pause_ns = engine_.tend();
      tend_at_ns = pause_ns < backend::no_tending - now_ns ? now_ns + pause_ns : backend::no_tending;
    }
    if (progress) {
      idle_polls = 0;
      continue;
    }
    const bool has_left = engine_.has_left_transfers();
    const bool under_way = has_left || (others_poll_ ? engine_.transfers_under_way() : engine_.transfers_unattended());
    const bool is_awaited = !others_poll_ || has_left || engine_.wants_background();
    const bool waits_for_them = under_way && is_awaited;
    if (waits_for_them && ++idle_polls < polls_before_sleep) {
      cpu_relax();
      continue;
    }
    idle_polls = 0;
    const std::uint64_t sleep_ns = waits_for_them ? busy_sleep_ns
                                   : under_way    ? watch_sleep_ns
                                                  : (engine_.wants_background() ? stuck_sleep_ns : idle_sleep_ns);
    waker_.sleep(std::min(sleep_ns, tend_at_ns - std::min(tend_at_ns, now_ns)));
  }
}

}  // namespace far::pager
