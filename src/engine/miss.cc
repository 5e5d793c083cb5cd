#include "engine/miss.h"

#include "base/check.h"

namespace far::engine {
namespace {

// Wakes a thread of the runtime for writes and repeated reads that this thread must leave to it.
void hand_on(const engine& with, host& around) {
  if (with.transfers().has_left()) around.wake_background();
}

}  // namespace

bool help(engine& with, host& around, caller who) noexcept {
  bool progress = false;
  {
    const engine_section inside(around);
    progress = with.transfers().help(who);
  }
  hand_on(with, around);
  return progress;
}

void look_after_transfers(const engine& with, host& around) noexcept {
  const bool others_poll = around.has_pollers();
  if (others_poll && with.transfers().under_way()) around.poll_soon();
  if (with.eviction().wants_background() || (!others_poll && with.transfers().unattended())) around.wake_background();
}

bool miss::reclaim_at_miss(engine& with, host& around, caller who) {
  bool progress = false;
  {
    const engine_section inside(around);
    progress = with.eviction().reclaim_at_miss(who);
  }
  hand_on(with, around);
  return progress;
}

bool miss::reclaim(engine& with, host& around, caller who) {
  bool progress = false;
  {
    const engine_section inside(around);
    progress = with.eviction().reclaim(who);
  }
  hand_on(with, around);
  return progress;
}

void miss::advance(fetcher& fetcher, read_ahead_state& streams) {
  outcome reached = outcome::busy;
  {
    const engine_section inside(*host_);
    reached = engine_->misses().handle(fetcher, streams, wanted_.page, wanted_.write, wanted_.cause);
  }
  switch (reached) {
    case outcome::resolved: now_ = state::resolved; return;
    case outcome::lost: now_ = state::lost; return;
    case outcome::in_flight:
      now_ = state::arriving;
      counted_ = true;
      return;
    case outcome::no_budget:
      now_ = state::short_of_frames;
      engine_->count().direct_reclaims.add();
      host_->wake_background();
      return;
    case outcome::busy: be_taken(); return;
  }
}

void miss::be_taken() {
  now_ = state::taken;
  if (!counted_) engine_->count().waits.add();
  counted_ = true;
}

miss::state miss::look() {
  if (has_ended() || now_ == state::begun) return now_;
  if (now_ == state::arriving && engine_->view().on_its_way(wanted_.page)) return now_;
  if (engine_->view().accessible(wanted_.page, wanted_.write)) return now_ = state::resolved;
  // It did not arrive, and nobody is to wait for the far tier: whoever wants room takes another place.
  if (now_ == state::arriving && wanted_.cause == demand::place) return now_ = state::lost;
  if (now_ == state::arriving || (now_ == state::short_of_frames && engine_->eviction().has_frame_for_miss()))
    now_ = state::begun;
  return now_;
}

bool miss::help() {
  FAR_DCHECK(now_ == state::short_of_frames || now_ == state::taken, "the miss waits for somebody's work");
  return now_ == state::taken ? far::engine::help(*engine_, *host_, who_) : reclaim(*engine_, *host_, who_);
}

void miss::note_end() {
  engine_->count().wait_ns.add(engine_->now_ns() - since_ns_);
}

}  // namespace far::engine
