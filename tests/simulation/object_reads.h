// The object path's reads in the simulated program: parts of pages, out of their slots, while other threads fetch,
// write, discard, move and free the same pages.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "model.h"
#include "random_source.h"
#include "scheduler.h"

namespace far::simulation {

class object_reads {
 public:
  object_reads(scheduler& threads, random_source& random, model& expected, engine::engine& engine);

  // One read, and the wait for it. `holds_page`: the caller keeps the page from being moved or freed, so what is read
  // can be compared with what it must hold.
  void read(page_id page, std::size_t part, bool holds_page);

  [[nodiscard]] std::uint64_t done() const { return done_; }
  [[nodiscard]] std::uint64_t lost_races() const { return lost_races_; }

 private:
  [[nodiscard]] engine::read_outcome start(engine::object_read& one);
  void wait_for(const engine::object_read& one);
  void check(const engine::object_read& one, std::size_t part, const std::byte* page_start);

  scheduler& threads_;
  random_source& random_;
  model& expected_;
  engine::engine& engine_;
  std::vector<engine::object_reader*> readers_;
  std::uint64_t done_ = 0;
  std::uint64_t lost_races_ = 0;
};

}  // namespace far::simulation
