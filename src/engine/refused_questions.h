// Which kinds of questions the far tier does not know, because its servers are of an older release. Their pages are
// fetched instead. Servers are upgraded while programs run, so a kind is asked about again from time to time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/page_reduction.h"
#include "platform/clock.h"

namespace far::engine {

// For all object readers of an engine: may be used by many threads at a time, also inside fault handlers.
class refused_questions {
 public:
  static constexpr std::uint64_t pause_ns = 60'000'000'000;

  explicit refused_questions(const platform::clock& time) : time_(time) {}

  [[nodiscard]] bool may_ask(const reduction& asked) const {
    const std::uint64_t again_at_ns = of(asked).again_at_ns.load(std::memory_order_relaxed);
    return again_at_ns == 0 || time_.now_ns() >= again_at_ns;
  }
  // It is on its way. If its kind was refused, it asks for all others: they wait for its answer, or another pause.
  void note_asked(const reduction& asked) {
    if (of(asked).again_at_ns.load(std::memory_order_relaxed) != 0) pause(asked);
  }
  void note_answered(const reduction& asked) {
    std::atomic<std::uint64_t>& again_at_ns = of(asked).again_at_ns;
    if (again_at_ns.load(std::memory_order_relaxed) != 0) again_at_ns.store(0, std::memory_order_relaxed);
  }
  // Returns whether no question of its kind was refused before: then the user is told.
  [[nodiscard]] bool note_refused(const reduction& asked) {
    pause(asked);
    return !of(asked).is_told.exchange(true, std::memory_order_relaxed);
  }

  // What is asked, for messages.
  [[nodiscard]] static const char* name_of(const reduction& asked) { return names[number_of(asked)]; }

 private:
  struct kind {
    std::atomic<std::uint64_t> again_at_ns{0};  // 0: it is not refused
    std::atomic<bool> is_told{false};
  };

  static constexpr std::size_t of_rows = static_cast<std::size_t>(reduction_kind::of_rows);
  // Buckets of rows came after questions about rows, lists after these, and short lists of places after long ones.
  static constexpr std::array names{"summaries",
                                    "marks",
                                    "counts",
                                    "lists of numbers",
                                    "lists of different numbers",
                                    "searches for a text",
                                    "sums of groups",
                                    "bounds of groups",
                                    "functions",
                                    "rows with keys",
                                    "rows in buckets",
                                    "lists of rows",
                                    "short lists of places"};
  static_assert(names.size() == of_rows + 4);

  [[nodiscard]] static std::size_t number_of(const reduction& asked) {
    const bool has_buckets = asked.kind == reduction_kind::of_rows && asked.rows->buckets > 0;
    if (has_buckets) return of_rows + (asked.rows->listed == 0 ? 1 : 2);
    if (asked.kind == reduction_kind::matches && asked.groups > 0) return of_rows + 3;
    return static_cast<std::size_t>(asked.kind);
  }
  [[nodiscard]] kind& of(const reduction& asked) { return kinds_[number_of(asked)]; }
  [[nodiscard]] const kind& of(const reduction& asked) const { return kinds_[number_of(asked)]; }
  void pause(const reduction& asked) {
    of(asked).again_at_ns.store(time_.now_ns() + pause_ns, std::memory_order_relaxed);
  }

  const platform::clock& time_;
  std::array<kind, names.size()> kinds_;
};

}  // namespace far::engine
