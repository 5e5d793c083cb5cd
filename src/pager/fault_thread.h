// The handler thread of fault_mode::thread: reads misses from userfaultfd and resolves them, also those that the kernel
// takes on behalf of a system call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "base/adaptive_spin.h"
#include "engine/engine.h"
#include "engine/miss_list.h"
#include "pager/miss_observer.h"
#include "platform/far_address_space.h"
#include "platform/own_descriptors.h"

namespace far::pager {

class fault_thread {
 public:
  // `lost`: called when the bytes that an access needs are lost; returns if the access is to be tried again.
  fault_thread(engine::engine& engine, engine::host& around, engine::fetcher& fetcher,
               const platform::userfaultfd& faults, const platform::heap_layout& heap,
               const std::function<void(platform::page_id)>& lost, miss_observer* observer);
  ~fault_thread() { stop(); }

  // Returns when the thread is at work. Until then the caller does its work: a thread that starts may itself touch far
  // memory, for instance the program's locale.
  void start();
  void stop();
  // In the child of a fork, which has no such thread.
  void close_in_child() { platform::close_own_descriptor(std::exchange(stop_descriptor_, -1)); }

 private:
  static constexpr std::size_t faults_a_read = 64;

  enum class outcome : std::uint8_t { nothing, progress, handed_over };

  void run();
  [[nodiscard]] outcome serve_until_at_work();
  [[nodiscard]] bool serve();
  [[nodiscard]] bool serve_locked() FAR_REQUIRES(fetcher_.lock);
  [[nodiscard]] bool read_new() FAR_REQUIRES(fetcher_.lock);
  void tell_observer(const platform::fault& reported, std::uint64_t now_ns) const;
  [[nodiscard]] platform::page_id page_of(const platform::fault& reported) const;
  [[nodiscard]] bool waits_for_device();
  [[nodiscard]] int arrivals_descriptor();
  [[nodiscard]] bool arrivals_wait_for_time();
  void sleep();

  engine::engine& engine_;
  engine::host& host_;
  engine::fetcher& fetcher_;
  const platform::userfaultfd& faults_;
  platform::heap_layout heap_;
  miss_observer* observer_;  // or null
  platform::monotonic_clock clock_;
  adaptive_spin spin_;
  engine::miss_list pending_;
  int stop_descriptor_ = -1;
  bool at_work_ FAR_GUARDED_BY(fetcher_.lock) = false;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace far::pager
