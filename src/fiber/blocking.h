// Calls that would hold up a worker in the kernel (files, name look-ups, waiting for children) are made by helper
// threads, while the fiber is parked.
#pragma once

#include <atomic>
#include <concepts>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/spin_lock.h"
#include "fiber/semaphore.h"
#include "fiber/waiter.h"

namespace far::fiber {

// A few threads, started when needed, up to a number; ordinary threads of the program.
class helper_pool {
 public:
  // Lies on the stack of the fiber that waits for it.
  struct job {
    void (*run)(job& self) noexcept = nullptr;
    job* next = nullptr;
    waiter done;
  };

  explicit helper_pool(unsigned most_threads) : most_threads_(most_threads) {}

  // Runs the job on a helper thread and waits until it is done. When not even one thread can be started, the caller
  // runs it itself.
  void run(job& one) noexcept;
  // Requires: no job is under way.
  void stop() noexcept;

  // Whether the calling thread is one of them.
  [[nodiscard]] bool is_running_caller() const noexcept;

  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t threads() const noexcept { return started_.load(std::memory_order_relaxed); }

 private:
  void work() noexcept;
  void run_without_threads() noexcept;
  void run_now(job& taken) noexcept;
  void append(job& last) noexcept FAR_REQUIRES(lock_);
  [[nodiscard]] job* take() noexcept FAR_REQUIRES(lock_);
  [[nodiscard]] bool start_thread() noexcept;

  const unsigned most_threads_;
  spin_lock lock_;
  job* first_ FAR_GUARDED_BY(lock_) = nullptr;
  job* last_ FAR_GUARDED_BY(lock_) = nullptr;
  unsigned jobs_under_way_ FAR_GUARDED_BY(lock_) = 0;  // that wait or run
  unsigned starting_or_running_ FAR_GUARDED_BY(lock_) = 0;
  std::vector<std::thread> threads_ FAR_GUARDED_BY(lock_);
  semaphore jobs_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<std::uint64_t> started_{0};
};

// The helpers of the calling fiber's scheduler, or nullptr on an OS thread.
[[nodiscard]] helper_pool* current_helpers() noexcept;

// Calls `function` and returns what it returns, or throws what it throws. On a fiber, a helper thread calls it; other
// fibers run meanwhile. At most scheduler_options::most_helpers calls run at a time, the rest queue: a call must not
// wait for another one.
template <std::invocable F>
std::invoke_result_t<F> blocking(F&& function) {
  using outcome = std::invoke_result_t<F>;
  static_assert(!std::is_reference_v<outcome>, "return a value or a pointer");
  helper_pool* const helpers = current_helpers();
  if (helpers == nullptr) return std::invoke(std::forward<F>(function));
  struct call : helper_pool::job {
    std::remove_reference_t<F>* function;
    std::exception_ptr thrown;
    std::conditional_t<std::is_void_v<outcome>, std::optional<bool>, std::optional<outcome>> returned;
  } mine;
  mine.function = &function;
  mine.run = [](helper_pool::job& self) noexcept {
    auto& here = static_cast<call&>(self);
    try {
      if constexpr (std::is_void_v<outcome>) {
        std::invoke(*here.function);
      } else {
        here.returned.emplace(std::invoke(*here.function));
      }
    } catch (...) {
      here.thrown = std::current_exception();
    }
  };
  helpers->run(mine);
  if (mine.thrown != nullptr) std::rethrow_exception(mine.thrown);
  if constexpr (!std::is_void_v<outcome>) return std::move(*mine.returned);
}

}  // namespace far::fiber
