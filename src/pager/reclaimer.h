// The thread of the engine's background work.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "engine/background.h"
#include "platform/waker.h"

namespace far::pager {

class reclaimer {
 public:
  // `settled`: called once, on this thread, when it has run for a second; may be empty.
  reclaimer(engine::engine& engine, engine::host& around, std::function<void()> settled = {})
      : work_(engine, around), settled_(std::move(settled)) {}
  ~reclaimer() { stop(); }

  void start();
  void stop();
  [[nodiscard]] bool is_running() const { return thread_.joinable(); }

  // There may be something to do. Cheap when the thread is awake.
  void wake() noexcept { waker_.wake(); }

 private:
  void run();

  engine::background work_;
  std::function<void()> settled_;
  platform::monotonic_clock clock_;
  platform::waker waker_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace far::pager
