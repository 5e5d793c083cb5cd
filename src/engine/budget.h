// The budget: how many frames the far heap may hold, and how many it holds. Invariant I2 lives here.
//
// A frame is charged before it comes into being (a fetch, a first touch, the pages of an open block) and released after
// it is gone. Two watermarks of free frames drive eviction: below `low` the evictor runs, until `high` is reached.
#pragma once

#include <atomic>
#include <cstdint>

namespace far::engine {

class budget {
 public:
  // `free_share`: the low watermark, as a share of the limit; 0: a share that suits most programs.
  explicit budget(std::uint64_t limit_pages, double free_share = 0) : free_share_(free_share) { resize(limit_pages); }

  // A lower limit does not release anything: free_pages() turns negative until the evictor has caught up.
  void resize(std::uint64_t limit_pages);

  // So much of it is used for something else than frames. At least half stays for them.
  void set_aside(std::uint64_t pages);
  [[nodiscard]] std::uint64_t aside_pages() const { return whole_pages() - limit_pages(); }
  // The limit, with what is set aside.
  [[nodiscard]] std::uint64_t whole_pages() const { return whole_.load(std::memory_order_relaxed); }

  // Charges `pages` if at least `reserve_pages` stay free afterwards.
  [[nodiscard]] bool try_charge(std::uint64_t pages, std::uint64_t reserve_pages = 0);

  // Charges one page if no more than `excess_pages` are above the limit afterwards.
  [[nodiscard]] bool try_charge_above(std::uint64_t excess_pages);

  // Charges whatever the limit says: for frames that exist already, and when eviction cannot go on (I6).
  void charge(std::uint64_t pages);
  void release(std::uint64_t pages);

  // In the child of a fork, which holds so many; its peak is its own.
  void begin_again(std::uint64_t charged_pages);

  [[nodiscard]] std::uint64_t limit_pages() const { return limit_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t charged_pages() const { return charged_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t peak_pages() const { return peak_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t free_pages() const {
    return static_cast<std::int64_t>(limit_pages()) - static_cast<std::int64_t>(charged_pages());
  }
  [[nodiscard]] std::uint64_t low_watermark_pages() const { return low_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t high_watermark_pages() const { return 2 * low_watermark_pages(); }
  [[nodiscard]] bool below_low() const { return free_pages() < static_cast<std::int64_t>(low_watermark_pages()); }
  [[nodiscard]] bool below_high() const { return free_pages() < static_cast<std::int64_t>(high_watermark_pages()); }

 private:
  [[nodiscard]] std::uint64_t low_watermark_for(std::uint64_t limit_pages) const;
  void note_peak(std::uint64_t charged);
  void divide();

  const double free_share_;
  std::atomic<std::uint64_t> whole_{0};
  std::atomic<std::uint64_t> aside_{0};
  std::atomic<std::uint64_t> limit_{0};
  std::atomic<std::uint64_t> low_{0};
  std::atomic<std::uint64_t> charged_{0};
  std::atomic<std::uint64_t> peak_{0};
};

}  // namespace far::engine
