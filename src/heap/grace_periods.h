// Grace periods: the time until every scope that was open at a moment has ended (as in read-copy-update; McKenney and
// Slingwine, 1998). Dereferences never wait. A thread that wants a place or a page for itself asks later whether it may
// have it.
//
//     const grace_number asked = all_scopes.stamp([&](grace_number n) { ...take it out of reach, note n... });
//     ... all_scopes.advance() now and then ...
//     if (all_scopes.is_over(asked)) nobody who reached it before is left
//
// For pages there are periods of their own, which do not wait for scopes that log (scope_log.h). Evictor and evacuator
// read the logs, too.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/lock_guard.h"
#include "base/spin_lock.h"
#include "heap/scope_records.h"

namespace far::heap {

// Never 0. Compared modulo 2^32: a number is good for as many periods as `oldest_grace` says.
using grace_number = std::uint32_t;
inline constexpr grace_number oldest_grace = grace_number{1} << 30;

enum class scopes_waited_for : std::uint8_t { all, without_log };

class grace_periods {
 public:
  constexpr explicit grace_periods(scopes_waited_for kind) : kind_(kind) {}
  grace_periods(const grace_periods&) = delete;
  grace_periods& operator=(const grace_periods&) = delete;

  // Calls `take_away` with the number of a period that begins after it has returned; it returns whether there is to be
  // one. Short, and must not wait.
  template <typename TakeAway>
  grace_number stamp(TakeAway take_away) {
    const lock_guard guard(numbers_);
    const grace_number number = next_;
    if (take_away(number)) wanted_ = true;
    return number;
  }

  // Whether every scope has ended that was open when the period of that number began.
  [[nodiscard]] bool is_over(grace_number number) const noexcept {
    return static_cast<std::int32_t>(over_.load(std::memory_order_acquire) - number) >= 0;
  }

  // The number of the last period that is over.
  [[nodiscard]] grace_number last_over() const noexcept { return over_.load(std::memory_order_acquire); }

  // Checks whether the current period is over, and begins one if one is wanted, and may begin: that costs a fence,
  // which interrupts the other processors. Does not wait; while another thread is doing this, it does nothing.
  void advance(bool may_begin = true) noexcept;

  // Returns false when the period is not over by then, or when it cannot be, because the caller itself is in a scope.
  [[nodiscard]] bool wait_until_over(grace_number number, std::chrono::microseconds at_most) noexcept;

 private:
  void begin() noexcept FAR_REQUIRES(driving_);
  void drop_ended() noexcept FAR_REQUIRES(driving_);
  void note_long_scopes() noexcept FAR_REQUIRES(driving_);
  [[nodiscard]] bool waits_for(std::uint64_t sequence) const noexcept;
  [[nodiscard]] owner_record::period_mark& mark_of(owner_record& one) const noexcept {
    return one.period_marks[static_cast<std::size_t>(kind_)];
  }

  const scopes_waited_for kind_;
  spin_lock numbers_;
  grace_number next_ FAR_GUARDED_BY(numbers_) = 1;
  bool wanted_ FAR_GUARDED_BY(numbers_) = false;
  std::atomic<grace_number> over_{0};

  spin_lock driving_;
  grace_number under_way_ FAR_GUARDED_BY(driving_) = 0;         // 0: none
  owner_record* open_then_ FAR_GUARDED_BY(driving_) = nullptr;  // those whose scope has not ended since it began
  std::chrono::steady_clock::time_point began_ FAR_GUARDED_BY(driving_){};
};

// Scopes belong to fibers and threads, not to runtimes.
extern constinit grace_periods all_scopes;
extern constinit grace_periods scopes_without_log;

}  // namespace far::heap
