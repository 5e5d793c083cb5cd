// The engine: residency, budget, fetch, evict. It owns no thread and never waits. Its callers (pager, simulation) poll
// and sleep, so the same code runs on a real kernel and on a simulated one.
//
// It creates its parts and gives access to them: the ranges for memory calls, the view of pages for software guards,
// the miss handler for the resolution of misses. Any thread may call a part at any time, unless the part says
// otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/core.h"
#include "engine/eviction_control.h"
#include "engine/eviction_pace.h"
#include "engine/eviction_place.h"
#include "engine/fork_steps.h"
#include "engine/hinted_use.h"
#include "engine/miss_handler.h"
#include "engine/page_pins.h"
#include "engine/page_ranges.h"
#include "engine/page_view.h"
#include "engine/statistics.h"
#include "engine/tier_tending.h"
#include "engine/transfer_queues.h"

namespace far::engine {

struct options {
  std::uint64_t heap_pages = 0;
  std::uint64_t budget_pages = 0;
  std::string policy = "2q";
  eviction_pace pace = {};
  bool reads_parts = false;   // there will be object readers
  bool tracks_writes = true;  // the kernel can write-protect pages and report the first write
  // Where to evict: as measured, from this place on; or always there.
  eviction_place where = eviction_place::background;
  bool measures_where = true;
  bool regions_come_whole = false;  // from the start, until samples show that it does not pay (neighbourhood.h)
  std::uint64_t first_number = 0;   // see residency
  std::uint64_t read_patience_ns = 30'000'000'000;  // see core.h
  eviction_filter* filter = nullptr;                // asked before pages leave; outlives the engine
  // What the secret of the pages' hashes is made of, for a simulation, whose runs can be repeated; 0: it is drawn.
  std::uint64_t hash_seed = 0;
};

class engine {
 public:
  // The address space of the tables for this many pages. Only the touched part of it takes memory.
  [[nodiscard]] static std::uint64_t table_bytes(std::uint64_t heap_pages, bool reads_parts) {
    return heap_pages * (residency::bytes_a_page + page_checks::bytes_a_page(reads_parts) + policy::most_bytes_a_page);
  }

  // Requires: the interfaces outlive the engine.
  [[nodiscard]] static result<std::unique_ptr<engine>> create(platform::address_space& space, backend::backend& far,
                                                              const platform::clock& time, const options& chosen);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  // For guards, which look up pages and wait for them.
  [[nodiscard]] const page_view& view() const { return view_; }
  // For threads and fibers that resolve misses.
  [[nodiscard]] miss_handler& misses() { return misses_; }
  [[nodiscard]] transfer_queues& transfers() { return transfers_; }
  [[nodiscard]] const transfer_queues& transfers() const { return transfers_; }
  [[nodiscard]] eviction_control& eviction() { return eviction_; }
  [[nodiscard]] const eviction_control& eviction() const { return eviction_; }
  // For hints.
  [[nodiscard]] hinted_use& hints() { return hints_; }
  // For the program's memory calls.
  [[nodiscard]] page_ranges& ranges() { return ranges_; }
  [[nodiscard]] page_pins& pins() { return pins_; }
  // For the background, and around fork.
  [[nodiscard]] tier_tending& tending() { return tending_; }
  [[nodiscard]] fork_steps& fork() { return fork_; }

  // Reports pages that settle to `listener` (residency.h). Before the first miss; it outlives the engine's last call.
  void set_listener(settling_listener& listener) { shared_.pages.set_listener(listener); }

  // Counters outside the parts: how long misses took, and whether a hint found them.
  [[nodiscard]] counters& count() { return shared_.count; }
  [[nodiscard]] statistics snapshot() const;
  [[nodiscard]] std::uint64_t now_ns() const { return shared_.time.now_ns(); }

  // Recomputes every invariant and stops the process when one is broken. Requires: no other call at the same time.
  void validate() const;

  [[nodiscard]] const core& state_for_tests() const { return shared_; }

 private:
  engine(platform::address_space& space, backend::backend& far, const platform::clock& time, const options& chosen);

  core shared_;
  transfer_queues transfers_;
  page_view view_;
  miss_handler misses_;
  hinted_use hints_;
  eviction_control eviction_;
  page_ranges ranges_;
  page_pins pins_;
  tier_tending tending_;
  fork_steps fork_;
};

}  // namespace far::engine
