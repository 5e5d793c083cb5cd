// Tells a thread that frees memory when no event loop is using it any more, without a lock on the loops' side. The idea
// is RCU with quiescent states (McKenney, "Exploiting Deferred Destruction", 2004).
//
//     a loop:    online ... use what address_of() returned ... quiet ... use ... offline, sleeps
//     who frees: take the address out of the table, ticket(), wait until passed(ticket), reuse the memory
//
// Between two quiescent states a loop may keep addresses that it has looked up; across one it may not.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/check.h"

namespace far::server {

class quiescent_states {
 public:
  using ticket = std::uint64_t;
  static constexpr std::size_t most_readers = 256;

  // One thread that looks things up; it starts offline. Not thread-safe itself. Requires: at most most_readers at a
  // time.
  class reader {
   public:
    explicit reader(quiescent_states& all) : all_(all), seat_(all.take_seat()) {}
    ~reader() {
      offline();
      all_.seats_[seat_].taken.store(false, std::memory_order_release);
    }
    reader(const reader&) = delete;
    reader& operator=(const reader&) = delete;

    // From now on it may look things up, but no longer uses earlier results.
    void quiet() { all_.seats_[seat_].seen.store(all_.now_.load()); }
    // It looks nothing up until the next quiet().
    void offline() { all_.seats_[seat_].seen.store(nobody); }

   private:
    quiescent_states& all_;
    std::size_t seat_;
  };

  // Call it after the address has been removed from the table (by a sequentially consistent store).
  [[nodiscard]] ticket draw() { return now_.fetch_add(1) + 1; }

  // Whether every reader has been quiet, or offline, since the ticket was drawn.
  [[nodiscard]] bool passed(ticket drawn) const {
    for (const seat& place : seats_) {
      if (place.seen.load() < drawn) return false;
    }
    return true;
  }

 private:
  static constexpr std::uint64_t nobody = std::numeric_limits<std::uint64_t>::max();

  // A cache line each: loops write their own at every turn.
  struct alignas(64) seat {
    std::atomic<std::uint64_t> seen{nobody};
    std::atomic<bool> taken{false};
  };

  std::size_t take_seat() {
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      if (!seats_[i].taken.exchange(true, std::memory_order_acquire)) return i;
    }
    FAR_CHECK(false, "more readers of the store than quiescent_states::most_readers");
    return 0;
  }

  std::atomic<std::uint64_t> now_{0};
  std::array<seat, most_readers> seats_;
};

}  // namespace far::server
