// The reclaimer: the background thread that evicts ahead of need, between the watermarks, and finishes transfers whose
// starters have gone on.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "engine/engine.h"
#include "platform/waker.h"

namespace far::pager {

class reclaimer {
 public:
  // `others_poll`: somebody else finishes transfers, so that this thread need not look at them all the time.
  // `settled`: called once, on this thread, when it has run for a second; may be empty.
  reclaimer(engine::engine& engine, bool others_poll, std::function<void()> settled = {})
      : engine_(engine), others_poll_(others_poll), settled_(std::move(settled)) {}
  ~reclaimer() { stop(); }

  void start();
  void stop();
  [[nodiscard]] bool is_running() const { return thread_.joinable(); }

  // There may be something to do. Cheap when the thread is awake.
  void wake() noexcept { waker_.wake(); }

 private:
  void run();

  engine::engine& engine_;
  const bool others_poll_;
  std::function<void()> settled_;
  platform::monotonic_clock clock_;
  platform::waker waker_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace far::pager
