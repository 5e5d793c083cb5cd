#include "pager/reclaimer.h"

#include <utility>

#include "platform/runtime_thread.h"

namespace far::pager {
namespace {

constexpr std::uint64_t settling_ns = 1'000'000'000;

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
  const std::uint64_t settled_at_ns = clock_.now_ns() + settling_ns;
  while (!stopping_.load(std::memory_order_relaxed)) {
    const std::uint64_t pause_ns = work_.step();
    if (settled_ && clock_.now_ns() >= settled_at_ns) std::exchange(settled_, nullptr)();
    if (pause_ns == 0) {
      cpu_relax();
    } else {
      waker_.sleep(pause_ns);
    }
  }
}

}  // namespace far::pager
