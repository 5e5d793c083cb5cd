#include "pager/reclaimer.h"

#include "pager/runtime_thread.h"

namespace far::pager {
namespace {

constexpr std::uint64_t idle_sleep_ns = 1'000'000'000;  // until woken
constexpr std::uint64_t busy_sleep_ns = 50'000;         // while transfers are under way
constexpr std::uint64_t stuck_sleep_ns = 10'000'000;    // while eviction is wanted and cannot go on
constexpr unsigned polls_before_sleep = 50;

}  // namespace

void reclaimer::start() {
  thread_ = start_runtime_thread("farheap-evict", [this] { run(); });
}

void reclaimer::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  waker_.wake();
  thread_.join();
}

void reclaimer::run() {
  bool reclaiming = false;
  unsigned idle_polls = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    // Between the watermarks an eviction that has begun goes on, and none begins.
    reclaiming = engine_.wants_reclaim() || (reclaiming && engine_.below_high());
    bool progress = false;
    if (reclaiming) progress |= engine_.reclaim(true);
    progress |= engine_.help();
    if (progress) {
      idle_polls = 0;
      continue;
    }
    const bool under_way = engine_.transfers_under_way();
    if (under_way && ++idle_polls < polls_before_sleep) {
      cpu_relax();
      continue;
    }
    idle_polls = 0;
    waker_.sleep(under_way ? busy_sleep_ns : (reclaiming ? stuck_sleep_ns : idle_sleep_ns));
  }
}

}  // namespace far::pager
