// Things that a container has unlinked, but that readers without a lock may still use (read-copy-update).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "far/detail/grace.h"
#include "far/detail/pointer.h"
#include "far/fiber.h"

namespace far::detail {

// Keeps things until every scope that was open when they were added has ended, then ends them. For fibers and threads.
class retired_list {
 public:
  // One thing: a far object, or something that `end` finds by `subject`.
  struct node {
    owner_word word{0};
    void* subject = nullptr;
    void (*end)(node& self) noexcept = nullptr;
    node* next = nullptr;
    std::uint32_t since = 0;

    node() = default;
    node(const node&) = delete;
    node& operator=(const node&) = delete;
    ~node() {
      if (end != nullptr) end(*this);
    }
  };

  // Things are checked once `batch` of them have been added.
  explicit retired_list(std::size_t batch) : batch_(batch) {}
  retired_list(const retired_list&) = delete;
  retired_list& operator=(const retired_list&) = delete;
  // Requires: nobody uses any of it.
  ~retired_list() { end_all(first_); }

  // Requires: scopes that open from now on cannot reach it.
  void add(std::unique_ptr<node> one) noexcept {
    const std::lock_guard guard(lock_);
    // Under the lock, so that the numbers are in order.
    one->since = note_out_of_reach();
    node* const added = one.release();
    (last_ == nullptr ? first_ : last_->next) = added;
    last_ = added;
    if (++added_ % batch_ == 0) is_due_.store(true, std::memory_order_relaxed);
  }

  // Ends the things that nobody can be using any more. Cheap unless much has been added. Call it outside scopes and
  // locks.
  void look_after() noexcept {
    if (!is_due_.load(std::memory_order_relaxed)) [[likely]]
      return;
    look_after_now();
  }

 private:
  [[gnu::noinline]] void look_after_now() noexcept {
    node* over = nullptr;
    {
      const std::lock_guard guard(lock_);
      is_due_.store(false, std::memory_order_relaxed);
      node** end = &over;
      while (first_ != nullptr && have_scopes_ended(first_->since)) {
        *end = std::exchange(first_, first_->next);
        end = &(*end)->next;
      }
      *end = nullptr;
      if (first_ == nullptr) last_ = nullptr;
    }
    end_all(over);
  }

  static void end_all(node* first) noexcept {
    while (first != nullptr) {
      const std::unique_ptr<node> one(first);
      first = one->next;
    }
  }

  const std::size_t batch_;
  mutex lock_;
  std::atomic<bool> is_due_{false};
  node* first_ = nullptr;
  node* last_ = nullptr;
  std::size_t added_ = 0;
};

}  // namespace far::detail
