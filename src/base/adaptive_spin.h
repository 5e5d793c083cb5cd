// How long a thread that waits for work should spin before it sleeps (spin, then park: Karlin et al., "Competitive
// randomized algorithms for nonuniform problems", 1994).
#pragma once

#include <algorithm>
#include <cstdint>

namespace far {

// Twice as long as work has lately taken to come, as far as spinning for that is worth it at all. Where work comes at
// longer intervals, the shortest time; so a thread with little to do wastes little.
//
// How long that is depends on the machine. Who is waited for may have to be woken first, on a processor that has gone
// to sleep: on a virtual machine that takes 30 to 50 us, and as long again if it then has to wake this thread.
class adaptive_spin {
 public:
  static constexpr std::uint64_t shortest_ns = 20'000;
  static constexpr std::uint64_t longest_ns = 200'000;

  [[nodiscard]] std::uint64_t limit_ns() const { return limit_ns_; }

  // Work has come so long after the work before it.
  void note_gap(std::uint64_t gap_ns) {
    // Slowly down, because gaps of one kind lie between those of another: work that was found beside other work.
    if (gap_ns <= longest_ns) limit_ns_ = std::max(limit_ns_ - limit_ns_ / 16, std::min(2 * gap_ns, longest_ns));
    if (gap_ns > longest_ns) limit_ns_ /= 2;
    limit_ns_ = std::max(limit_ns_, shortest_ns);
  }

  // Somebody else wants the processor.
  void note_crowd() { limit_ns_ = shortest_ns; }

 private:
  std::uint64_t limit_ns_ = shortest_ns;
};

}  // namespace far
