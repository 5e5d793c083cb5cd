// The ready fibers of one worker, by priority. The owner takes the oldest of the highest priority; other workers steal.
//
// A spin lock around linked lists: fibers are the links, so that it never overflows, allocates or loses the order in
// which fibers became ready. A bounded lock-free ring was measured beside it: docs/decisions/0011-fibers.md.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/spin_lock.h"
#include "fiber/control_block.h"

namespace far::fiber {

class run_queue {
 public:
  // After this many fibers of higher priority in a row, a waiting one of lower priority has its turn.
  static constexpr unsigned most_passed_over = 64;
  // The most that one steal takes: half of a level, up to this.
  static constexpr std::size_t most_stolen = 8;

  // Appends. Returns how many are in the queue now. The caller must own the fiber (control_block.h).
  std::size_t push(control_block& ready) noexcept;

  // The next to run, or nullptr. Owner only.
  [[nodiscard]] control_block* pop() noexcept;

  // Takes fibers that may run anywhere, oldest first, all of one priority. Returns how many. Any thread.
  [[nodiscard]] std::size_t steal(std::span<control_block*, most_stolen> into) noexcept;

  // Hints, without the lock.
  [[nodiscard]] std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t stealable() const noexcept { return stealable_.load(std::memory_order_relaxed); }
  // How often the owner took one: unchanged between two looks means that the owner is busy with one fiber.
  [[nodiscard]] std::uint64_t pops() const noexcept { return pops_.load(std::memory_order_relaxed); }

  // With the lock: a push that happened before, in any thread, is seen; and a push that comes after sees what the
  // caller wrote before. This is what lets a worker go to sleep without missing a fiber.
  [[nodiscard]] std::size_t size_for_sleep() noexcept;
  [[nodiscard]] std::size_t stealable_for_sleep() noexcept;

  // How often the bound on passing over decided. Owner only.
  [[nodiscard]] std::uint64_t turns_given() const noexcept { return turns_given_.load(std::memory_order_relaxed); }

 private:
  struct list {
    control_block* first = nullptr;
    control_block* last = nullptr;
    std::size_t count = 0;

    void append(control_block& one) noexcept;
    [[nodiscard]] control_block* take() noexcept;
  };
  struct level {
    list anywhere;
    list pinned;
    bool pinned_next = false;  // they take turns
    unsigned passed_over = 0;

    [[nodiscard]] bool empty() const { return anywhere.count + pinned.count == 0; }
    [[nodiscard]] control_block* take() noexcept;
  };

  [[nodiscard]] level* choose() noexcept FAR_REQUIRES(lock_);
  void note_sizes() noexcept FAR_REQUIRES(lock_);

  spin_lock lock_;
  std::array<level, priorities> levels_ FAR_GUARDED_BY(lock_);
  std::atomic<std::size_t> size_{0};
  std::atomic<std::size_t> stealable_{0};
  std::atomic<std::uint64_t> pops_{0};
  std::atomic<std::uint64_t> turns_given_{0};
};

}  // namespace far::fiber
