// A queue of bounded length: far::channel, and the same for the library's own fibers (fiber/channel.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "far/task.h"

namespace far::detail {

// Whoever receives the last item, or finds the channel closed, may destroy it, as who waits for one answer does. So a
// call uses nothing of it once it has unlocked the mutex: all notifications come before.
template <typename T, typename Mutex, typename Condition>
class basic_channel {
 public:
  // Memory for all items is allocated here. Throws std::invalid_argument for a capacity of 0.
  explicit basic_channel(std::size_t capacity) : items_(capacity) {
    if (capacity == 0) throw std::invalid_argument("a channel has room for at least one item");
  }

  // Waits for room. Returns false, and leaves `item` as it was, when the channel is closed or the end came first.
  bool send(T&& item) { return send_until(std::move(item), no_deadline); }
  bool send(const T& item) { return send(T(item)); }
  [[nodiscard]] bool send_until(T&& item, deadline at_most) {
    {
      const std::lock_guard guard(mutex_);
      const auto possible = [this] { return closed_ || count_ < items_.size(); };
      if (!room_.wait_until(mutex_, at_most, possible) || closed_) return false;
      try {
        items_[(first_ + count_) % items_.size()].emplace(std::move(item));
      } catch (...) {
        room_.notify_one();  // it is for the next sender
        throw;
      }
      ++count_;
      arrived_.notify_one();
    }
    return true;
  }
  [[nodiscard]] bool send_for(T&& item, std::chrono::nanoseconds at_most) {
    return send_until(std::move(item), deadline_after(at_most));
  }

  // Waits for an item. Returns none when the channel is closed and empty, or the end came first.
  [[nodiscard]] std::optional<T> receive() { return receive_until(no_deadline); }
  [[nodiscard]] std::optional<T> receive_until(deadline at_most) {
    std::optional<T> item;
    {
      const std::lock_guard guard(mutex_);
      const auto possible = [this] { return closed_ || count_ > 0; };
      if (!arrived_.wait_until(mutex_, at_most, possible) || count_ == 0) return std::nullopt;
      try {
        item.swap(items_[first_]);
      } catch (...) {
        arrived_.notify_one();
        throw;
      }
      first_ = (first_ + 1) % items_.size();
      --count_;
      room_.notify_one();
    }
    return item;
  }
  [[nodiscard]] std::optional<T> receive_for(std::chrono::nanoseconds at_most) {
    return receive_until(deadline_after(at_most));
  }

  // From now on nothing can be sent; items that are there can still be received. Ends all waits that cannot succeed any
  // more.
  void close() {
    const std::lock_guard guard(mutex_);
    closed_ = true;
    room_.notify_all();
    arrived_.notify_all();
  }
  [[nodiscard]] bool closed() {
    const std::lock_guard guard(mutex_);
    return closed_;
  }

 private:
  // A fiber mutex, not a spin lock: moving an item may touch far memory, and then the fiber parks while it holds the
  // mutex. It guards all below.
  Mutex mutex_;
  Condition room_;
  Condition arrived_;
  std::vector<std::optional<T>> items_;  // a ring
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  bool closed_ = false;
};

}  // namespace far::detail
