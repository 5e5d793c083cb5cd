// Waiting on fibers: mutexes, condition variables, semaphores, channels, sleep, calls that block. All of it works
// between fibers, between OS threads, and between both; while a fiber waits, others of its worker run.
//
//     far::channel<int> numbers(16);
//     far::task<int> sum = farheap.spawn([&] {
//       int found = 0;
//       while (std::optional<int> next = numbers.receive()) found += *next;
//       return found;
//     });
//     for (int i = 0; i < 100; ++i) numbers.send(i);
//     numbers.close();
//     std::printf("%d\n", sum.join());
//
// std::mutex and its like also work on fibers, but hold up the worker and all its fibers while they wait. A fiber must
// not hold one while it waits for anything else, such as a far object: the next holder may be waiting on the same
// worker, or the fiber may continue on another thread, which must not unlock it.
//
// All of these lie in local memory, not in far objects. After every wait a fiber may continue on another OS thread, so
// addresses of thread-local variables, errno among them, must be taken again.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "far/detail/api.h"
#include "far/detail/channel.h"
#include "far/runtime.h"
#include "far/task.h"

namespace far {

namespace detail {

// Room for an object that the library makes and knows.
inline constexpr std::size_t synchronisation_bytes = 64;

struct any_lock {
  void* object;
  void (*lock)(void* object);
  void (*unlock)(void* object);

  template <typename Lock>
  [[nodiscard]] static any_lock erase(Lock& lock) {
    return {&lock, [](void* object) { static_cast<Lock*>(object)->lock(); },
            [](void* object) { static_cast<Lock*>(object)->unlock(); }};
  }
};

// Runs `call` on a thread where it holds up no worker. Throws what `call` throws.
FAR_API void run_blocking(void (*call)(void* context), void* context);

}  // namespace detail

// Meets the standard's TimedLockable requirements: for std::lock_guard, unique_lock, scoped_lock. The waiter that has
// waited longest gets it next. Not recursive.
class FAR_API mutex {
 public:
  mutex() noexcept;
  ~mutex();
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  void lock() noexcept;
  [[nodiscard]] bool try_lock() noexcept;
  // Return false when the end came first.
  [[nodiscard]] bool try_lock_until(std::chrono::steady_clock::time_point at_most) noexcept;
  [[nodiscard]] bool try_lock_for(std::chrono::nanoseconds at_most) noexcept {
    return try_lock_until(detail::deadline_after(at_most));
  }
  // Requires: the caller locked it.
  void unlock() noexcept;

 private:
  alignas(8) std::byte room_[detail::synchronisation_bytes];
};

// For any lock that has lock() and unlock(), as std::unique_lock<far::mutex>. No wait ends without a notification or
// its end. It may be destroyed once all waits have been notified, although they have perhaps not returned yet.
class FAR_API condition_variable {
 public:
  condition_variable() noexcept;
  ~condition_variable();
  condition_variable(const condition_variable&) = delete;
  condition_variable& operator=(const condition_variable&) = delete;

  // Each unlocks `lock`, which the caller holds, waits, and locks it again. Waits with an end return false when the end
  // came first; waits with a predicate return its last result.
  template <typename Lock>
  void wait(Lock& lock) {
    static_cast<void>(wait_until(lock, detail::no_deadline));
  }
  template <typename Lock, std::predicate Predicate>
  void wait(Lock& lock, Predicate holds) {
    while (!holds()) wait(lock);
  }
  template <typename Lock>
  bool wait_until(Lock& lock, std::chrono::steady_clock::time_point at_most) {
    return wait_with(detail::any_lock::erase(lock), at_most);
  }
  template <typename Lock, std::predicate Predicate>
  bool wait_until(Lock& lock, std::chrono::steady_clock::time_point at_most, Predicate holds) {
    while (!holds()) {
      if (!wait_until(lock, at_most)) return holds();
    }
    return true;
  }
  template <typename Lock, typename... Predicate>
  bool wait_for(Lock& lock, std::chrono::nanoseconds at_most, Predicate... holds) {
    return wait_until(lock, detail::deadline_after(at_most), std::move(holds)...);
  }

  // With or without the lock held.
  void notify_one() noexcept;
  void notify_all() noexcept;

 private:
  [[nodiscard]] bool wait_with(detail::any_lock lock, std::chrono::steady_clock::time_point at_most);

  alignas(8) std::byte room_[detail::synchronisation_bytes];
};

// The longest waiters are served first. The number of permits has no upper bound.
class FAR_API counting_semaphore {
 public:
  explicit counting_semaphore(std::uint64_t permits = 0) noexcept;
  ~counting_semaphore();
  counting_semaphore(const counting_semaphore&) = delete;
  counting_semaphore& operator=(const counting_semaphore&) = delete;

  void acquire() noexcept { static_cast<void>(try_acquire_until(detail::no_deadline)); }
  [[nodiscard]] bool try_acquire() noexcept;
  // Return false when the end came first.
  [[nodiscard]] bool try_acquire_until(std::chrono::steady_clock::time_point at_most) noexcept;
  [[nodiscard]] bool try_acquire_for(std::chrono::nanoseconds at_most) noexcept {
    return try_acquire_until(detail::deadline_after(at_most));
  }
  void release(std::uint64_t permits = 1) noexcept;

 private:
  alignas(8) std::byte room_[detail::synchronisation_bytes];
};

// A queue of bounded length; any number of senders and receivers. The values that it carries may own far objects. A
// receiver that has got the last value may destroy it, although the sender's call has perhaps not returned yet.
template <typename T>
class channel : public detail::basic_channel<T, mutex, condition_variable> {
 public:
  using detail::basic_channel<T, mutex, condition_variable>::basic_channel;
};

// The calling fiber or, on an OS thread that runs no fiber, the thread.
namespace this_fiber {

[[nodiscard]] FAR_API bool is_fiber() noexcept;
// Lets other ready fibers run first; returns at once when there are none.
FAR_API void yield() noexcept;
FAR_API void sleep_until(std::chrono::steady_clock::time_point when) noexcept;
inline void sleep_for(std::chrono::nanoseconds how_long) noexcept {
  sleep_until(detail::deadline_after(how_long));
}

}  // namespace this_fiber

// Calls `function` and returns what it returns, or throws what it throws. On a fiber, a helper thread calls it, while
// other fibers run. Use it for calls that block a thread in the kernel (files, name look-ups, a library's std::mutex).
// At most 16 such calls run at a time, the rest queue: a call must not wait for another one. It may use far pointers,
// in scopes of its own.
template <std::invocable F>
std::invoke_result_t<F> blocking(F&& function) {
  using outcome = std::invoke_result_t<F>;
  static_assert(!std::is_reference_v<outcome>, "return a value or a pointer");
  struct call {
    std::remove_reference_t<F>& function;
    std::conditional_t<std::is_void_v<outcome>, std::optional<bool>, std::optional<outcome>> returned;
  } mine{function, {}};
  detail::run_blocking(
      [](void* context) {
        call& here = *static_cast<call*>(context);
        if constexpr (std::is_void_v<outcome>) {
          std::invoke(std::forward<F>(here.function));
        } else {
          here.returned.emplace(std::invoke(std::forward<F>(here.function)));
        }
      },
      &mine);
  if constexpr (!std::is_void_v<outcome>) return std::move(*mine.returned);
}

}  // namespace far
