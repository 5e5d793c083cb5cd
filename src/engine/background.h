// Background work, for which no miss waits: eviction ahead of need, between the watermarks; transfers that their
// starters have left behind; and the far tier's own upkeep.
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "engine/host.h"

namespace far::engine {

class background {
 public:
  background(engine& with, host& around) : engine_(with), host_(around) {}

  // Does a part of it. Returns how long the caller may sleep unless the host wakes the background; 0: call again at
  // once.
  [[nodiscard]] std::uint64_t step();

 private:
  [[nodiscard]] bool work();
  [[nodiscard]] std::uint64_t pause_ns(std::uint64_t now_ns);

  engine& engine_;
  host& host_;
  unsigned idle_polls_ = 0;
  std::uint64_t tend_at_ns_ = 0;
};

}  // namespace far::engine
