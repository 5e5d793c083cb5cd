// The emulated wire of `memory:?latency=...&gbps=...`: computes when a transfer that starts now completes.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "backend/backend.h"

namespace far::backend {

// Shared by all channels of a backend; thread-safe. Like a real link it is full duplex: reads and writes each have the
// whole bandwidth and do not delay each other.
class emulated_link {
 public:
  // 0 means: no latency, no limit on bandwidth.
  emulated_link(std::uint64_t latency_ns, double gigabits_per_second)
      : latency_ns_(latency_ns), ns_per_byte_(gigabits_per_second > 0 ? 8 / gigabits_per_second : 0) {}

  [[nodiscard]] bool instant() const { return latency_ns_ == 0 && ns_per_byte_ == 0; }

  // Puts a transfer on the link behind those before it and returns the time of its completion. Times returned to one
  // thread for one direction never decrease.
  [[nodiscard]] std::uint64_t completion_ns(operation op, std::size_t length_bytes, std::uint64_t now_ns) {
    const auto busy_ns = static_cast<std::uint64_t>(std::llround(ns_per_byte_ * static_cast<double>(length_bytes)));
    std::atomic<std::uint64_t>& free_at_ns = free_at_ns_[op == operation::read ? 0 : 1];
    std::uint64_t seen_ns = free_at_ns.load(std::memory_order_relaxed);
    std::uint64_t end_ns = 0;
    do {
      end_ns = std::max(seen_ns, now_ns) + busy_ns;
    } while (!free_at_ns.compare_exchange_weak(seen_ns, end_ns, std::memory_order_relaxed));
    return end_ns + latency_ns_;
  }

 private:
  const std::uint64_t latency_ns_;
  const double ns_per_byte_;
  std::array<std::atomic<std::uint64_t>, 2> free_at_ns_{};
};

}  // namespace far::backend
