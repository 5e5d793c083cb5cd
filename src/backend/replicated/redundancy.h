// How much of the redundancy that was asked for is there, for reports: counted by tend(), in small steps, only while
// anything is amiss.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "backend/replicated/layer.h"

namespace far::backend {

// look() is called by one thread at a time, the getters by any.
class redundancy {
 public:
  // `lacking(number)`: how many copies the pages of a group lack now; groups are numbered from 0 to `end`. `is_idle`:
  // the repairer has found all in order.
  template <typename Counter>
  void look(const layer& members, std::uint64_t end, bool is_idle, Counter lacking) {
    const std::uint64_t now_ns = members.time.now_ns();
    if (was_degraded_) degraded_ns_.fetch_add(now_ns - std::min(looked_at_ns_, now_ns), std::memory_order_relaxed);
    looked_at_ns_ = now_ns;
    const bool are_away = away_servers(members) > 0;
    if (!is_idle || are_away || lacking_copies() > 0 || next_ > 0) count(end, lacking);
    was_degraded_ = are_away || lacking_copies() > 0;
  }

  // The members that are in use, and those of them that do not serve.
  [[nodiscard]] static std::uint64_t servers(const layer& members) {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(members.view(), [](const member* one) { return !one->is_gone(); }));
  }
  [[nodiscard]] static std::uint64_t away_servers(const layer& members) {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(members.view(), [](const member* one) { return !one->is_gone() && !one->serves(); }));
  }
  // As of the last time that all groups had been looked at.
  [[nodiscard]] std::uint64_t lacking_copies() const { return lacking_copies_.load(std::memory_order_relaxed); }
  // The time in which a server was away, or copies were lacking.
  [[nodiscard]] std::uint64_t degraded_ns() const { return degraded_ns_.load(std::memory_order_relaxed); }

 private:
  // 20 GiB a second at ten looks.
  static constexpr std::uint64_t groups_a_look = 1024;

  template <typename Counter>
  void count(std::uint64_t end, Counter lacking) {
    const std::uint64_t until = std::min(end, next_ + groups_a_look);
    for (; next_ < until; ++next_) counted_ += lacking(next_);
    if (next_ < end) return;
    lacking_copies_.store(counted_, std::memory_order_relaxed);
    counted_ = next_ = 0;
  }

  std::uint64_t next_ = 0;
  std::uint64_t counted_ = 0;
  std::uint64_t looked_at_ns_ = 0;
  bool was_degraded_ = false;
  std::atomic<std::uint64_t> lacking_copies_{0};
  std::atomic<std::uint64_t> degraded_ns_{0};
};

}  // namespace far::backend
