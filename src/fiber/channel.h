// A queue of bounded length between fibers and OS threads, mixed; any number of senders and receivers. Must lie in
// local memory (mutex.h); what it carries may be far.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fiber/condition_variable.h"
#include "fiber/mutex.h"

namespace far::fiber {

template <typename T>
class channel {
 public:
  // Requires: capacity >= 1. Memory for all items is allocated here.
  explicit channel(std::size_t capacity) : items_(capacity) {
    FAR_CHECK(capacity >= 1, "a channel has room for at least one item");
  }

  // Waits for room. Returns false, and leaves `item` as it was, when the channel is closed or the deadline came first.
  bool send(T&& item) { return send_until(std::move(item), never); }
  bool send(const T& item) { return send(T(item)); }
  [[nodiscard]] bool send_until(T&& item, time_point deadline) {
    {
      const lock_guard guard(mutex_);
      const auto possible = [this] {
        mutex_.assert_held();
        return closed_ || count_ < items_.size();
      };
      if (!room_.wait_until(mutex_, deadline, possible) || closed_) return false;
      items_[(first_ + count_) % items_.size()].emplace(std::move(item));
      ++count_;
    }
    arrived_.notify_one();
    return true;
  }
  [[nodiscard]] bool send_for(T&& item, std::chrono::nanoseconds at_most) {
    return send_until(std::move(item), after(at_most));
  }

  // Waits for an item. Returns none when the channel is closed and empty, or the deadline came first.
  [[nodiscard]] std::optional<T> receive() { return receive_until(never); }
  [[nodiscard]] std::optional<T> receive_until(time_point deadline) {
    std::optional<T> item;
    {
      const lock_guard guard(mutex_);
      const auto possible = [this] {
        mutex_.assert_held();
        return closed_ || count_ > 0;
      };
      if (!arrived_.wait_until(mutex_, deadline, possible) || count_ == 0) return std::nullopt;
      std::optional<T>& oldest = items_[first_];
      item.swap(oldest);
      first_ FAR_GUARDED_BY(mutex_) = (first_ + 1) % items_.size();
      --count_;
    }
    room_.notify_one();
    return item;
  }
  [[nodiscard]] std::optional<T> receive_for(std::chrono::nanoseconds at_most) { return receive_until(after(at_most)); }

  // No more is sent; what is there can still be received. Ends all waits that cannot succeed any more.
  void close() {
    {
      const lock_guard guard(mutex_);
      closed_ FAR_GUARDED_BY(mutex_) = true;
    }
    room_.notify_all();
    arrived_.notify_all();
  }
  [[nodiscard]] bool closed() {
    const lock_guard guard(mutex_);
    return closed_;
  }

 private:
  // A fiber mutex, not a spin lock: moving an item may touch far memory, and then the fiber parks while it holds it.
  mutex mutex_;
  condition_variable room_;
  condition_variable arrived_;
  std::vector<std::optional<T>> items_ FAR_GUARDED_BY(mutex_);  // a ring
  std::size_t first_ = 0;
  std::size_t count_ FAR_GUARDED_BY(mutex_) = 0;
  bool closed_ = false;
};

}  // namespace far::fiber
