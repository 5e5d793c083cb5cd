// far::task: a fiber that was spawned, and its result.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "far/detail/api.h"

namespace far {

class runtime;

struct spawn_options {
  const char* name = nullptr;   // for messages; copied, cut at 31 characters
  std::size_t stack_bytes = 0;  // 0: 64 KiB; more for deep recursion and large local variables
};

namespace detail {

using deadline = std::chrono::steady_clock::time_point;
inline constexpr deadline no_deadline = deadline::max();
// The time `from_now` from now, or no_deadline when that lies beyond the clock's range.
[[nodiscard]] FAR_API deadline deadline_after(std::chrono::nanoseconds from_now) noexcept;

// Starts a fiber of a runtime, for a running_fiber to own. Throws std::system_error when there is no memory for a
// stack.
[[nodiscard]] FAR_API void* start_fiber(runtime& on, const spawn_options& how, void (*body)(void* state) noexcept,
                                        void* state);

// A fiber that runs, or has run. Waits for its end when it is destroyed. Move-only.
class FAR_API running_fiber {
 public:
  running_fiber() = default;
  // Of start_fiber().
  explicit running_fiber(void* started) noexcept : fiber_(started) {}
  running_fiber(running_fiber&& other) noexcept : fiber_(std::exchange(other.fiber_, nullptr)) {}
  running_fiber& operator=(running_fiber&& other) noexcept {
    if (this != &other) {
      if (fiber_ != nullptr) static_cast<void>(join_until(no_deadline));
      fiber_ = std::exchange(other.fiber_, nullptr);
    }
    return *this;
  }
  ~running_fiber() {
    if (fiber_ != nullptr) static_cast<void>(join_until(no_deadline));
  }

  [[nodiscard]] explicit operator bool() const noexcept { return fiber_ != nullptr; }
  // Returns false when the deadline came first. After true there is no fiber any more. Requires: there is a fiber.
  [[nodiscard]] bool join_until(deadline at_most) noexcept;

 private:
  void* fiber_ = nullptr;  // fiber::control_block
};

template <typename T>
struct task_result {
  std::exception_ptr thrown;
  std::conditional_t<std::is_void_v<T>, std::optional<bool>, std::optional<T>> returned;

  task_result() = default;
  task_result(const task_result&) = delete;
  task_result& operator=(const task_result&) = delete;
  virtual ~task_result() = default;
};

template <typename F, typename T>
struct task_state : task_result<T> {
  std::optional<F> body;

  template <typename Given>
  explicit task_state(Given&& given) : body(std::in_place, std::forward<Given>(given)) {}

  // Runs on the fiber. Objects that the callable holds are destroyed before the fiber ends.
  static void run(void* self) noexcept {
    auto& mine = *static_cast<task_state*>(self);
    try {
      if constexpr (std::is_void_v<T>) {
        std::invoke(std::move(*mine.body));
      } else {
        mine.returned.emplace(std::invoke(std::move(*mine.body)));
      }
    } catch (...) {
      mine.thrown = std::current_exception();
    }
    mine.body.reset();
  }
};

}  // namespace detail

// A fiber that was spawned (far::runtime::spawn), which returns a T. Its destructor joins; a result or an exception
// that nobody has asked for is then dropped. Move-only.
template <typename T = void>
class [[nodiscard]] task {
  static_assert(!std::is_reference_v<T>, "a task returns a value or a pointer");

 public:
  task() = default;
  task(task&&) noexcept = default;
  task& operator=(task&& other) noexcept {
    running_ = std::move(other.running_);  // first: its fiber uses the state
    result_ = std::move(other.result_);
    return *this;
  }
  ~task() = default;

  // Whether join() may be called: it has a fiber whose result nobody has taken.
  [[nodiscard]] bool joinable() const noexcept { return result_ != nullptr; }

  // Waits until the fiber has ended, and returns what it returned, or throws what it threw. From a fiber or an OS
  // thread, not from itself. Requires joinable().
  T join() {
    wait();
    const std::unique_ptr<detail::task_result<T>> ended = std::move(result_);
    if (ended->thrown != nullptr) std::rethrow_exception(std::move(ended->thrown));
    if constexpr (!std::is_void_v<T>) return std::move(*ended->returned);
  }

  // Wait until the fiber has ended, and leave the result for join(). Waits with an end return false when the end came
  // first. Require joinable().
  void wait() noexcept { static_cast<void>(wait_until(detail::no_deadline)); }
  bool wait_until(std::chrono::steady_clock::time_point at_most) noexcept {
    return !running_ || running_.join_until(at_most);
  }
  bool wait_for(std::chrono::nanoseconds at_most) noexcept { return wait_until(detail::deadline_after(at_most)); }

 private:
  friend class runtime;

  std::unique_ptr<detail::task_result<T>> result_;
  detail::running_fiber running_;  // last, so that it is destroyed first, which joins
};

}  // namespace far
