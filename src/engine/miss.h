// The way of a miss, from the report to the access that can be repeated.
//
// A state machine that never waits. Its driver lets it advance, and waits in its own way as the state requires: a
// thread that missed (thread_misses.h), a fiber (parked_misses.h), or the loop that serves the misses of other threads,
// which turns to the next one instead (miss_list.h).
//
//   begun --advance--> resolved          the access can be repeated
//                      lost              the bytes are gone for good; of a place: or out of reach
//                      arriving          the page is on its way
//                      short_of_frames   one must become free; help() evicts
//                      taken             another thread is working on the page; help() finishes transfers of others
//   any of the last three --look--> itself, or, when its wait is over, begun or resolved
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "engine/host.h"

namespace far::engine {

struct wanted_page {
  page_id page = 0;
  bool write = false;
  demand cause = demand::access;
};

class miss {
 public:
  enum class state : std::uint8_t { begun, resolved, lost, arriving, short_of_frames, taken };

  miss(engine& with, host& around, wanted_page wanted, caller who = caller::of_program)
      : engine_(&with), host_(&around), wanted_(wanted), who_(who), since_ns_(with.now_ns()) {}

  [[nodiscard]] page_id page() const { return wanted_.page; }
  [[nodiscard]] state now() const { return now_; }
  [[nodiscard]] bool has_ended() const { return now_ == state::resolved || now_ == state::lost; }

  // Evicts here, while the missing thread stands still, if that is the cheaper place.
  void make_room() { reclaim_at_miss(*engine_, *host_, who_); }
  static bool reclaim_at_miss(engine& with, host& around, caller who);
  // Takes a step of evicting, because there is no frame. Returns whether there was anything to do.
  static bool reclaim(engine& with, host& around, caller who);

  // Takes the steps that are possible now. `streams`: the missing thread's history.
  void advance(fetcher& fetcher, read_ahead_state& streams) FAR_REQUIRES(fetcher.lock);
  // No fetcher could be had.
  void be_taken();

  // Checks whether the wait of the miss is over.
  state look();

  // Works towards that. Returns whether anything was done; if not, it is time to wait.
  bool help();

  // Counts how long it took. Requires: has_ended().
  void note_end();

 private:
  engine* engine_;
  host* host_;
  wanted_page wanted_;
  caller who_;
  state now_ = state::begun;
  bool counted_ = false;  // as a wait for somebody else's work
  std::uint64_t since_ns_;
};

// Finishes transfers of others, as transfer_queues::help(). Wakes the background for transfers that the calling thread
// must leave to a thread of the runtime.
bool help(engine& with, host& around, caller who) noexcept;

// Transfers may be under way for which no thread waits. Otherwise the background sleeps on, because waking it takes a
// processor from the program.
void look_after_transfers(const engine& with, host& around) noexcept;

}  // namespace far::engine
