// The work that no miss waits for: eviction ahead of need, between the watermarks; transfers whose starters have gone
// on; and what the far tier has to do behind them.
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "engine/host.h"

namespace far::engine {

class background {
 public:
  background(engine& with, host& around) : engine_(with), host_(around) {}

  // Does some of it. Returns for how long there is nothing to do unless the host is told to wake the background; 0:
  // call again at once.
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
