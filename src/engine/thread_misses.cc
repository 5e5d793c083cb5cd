#include "engine/thread_misses.h"

#include <mutex>

#include "base/lock_guard.h"

namespace far::engine {
namespace {

// For an arrival, before the engine is asked again. Every arrival ends the wait, so its length does not matter, as long
// as it ends after the kernel's next tick: a timer before that is set in hardware, which a virtual processor is left
// for twice (docs/decisions/0100-short-timers.md).
constexpr std::uint64_t longest_wait_ns = 10'000'000;
constexpr std::uint64_t rest_ns = 500'000;  // between two looks at a read that failed and is tried again later

bool poll(fetcher& one, host& around, caller who) FAR_REQUIRES(one.lock) {
  const engine_section inside(around);
  return one.poll(who);
}

// Waits with the fetcher's lock held, so that nobody else needs to look after the transfer; but not for a read that
// rests.
void advance_and_await_arrival(miss& one, const fetcher_pool& fetchers, host& around, read_ahead_state& streams,
                               caller who) {
  fetcher& fetcher = fetchers.lock(around.preferred_fetcher());
  fetcher.lock.assert_held();
  const lock_guard guard(fetcher.lock, std::adopt_lock);
  one.advance(fetcher, streams);
  while (one.look() == miss::state::arriving && !fetcher.only_rests()) {
    if (!poll(fetcher, around, who)) fetcher.wait(longest_wait_ns);
  }
}

}  // namespace

miss::state resolve_on_thread(engine& with, host& around, const fetcher_pool& fetchers, read_ahead_state& streams,
                              wanted_page wanted, caller who) {
  miss one(with, around, wanted, who);
  one.make_room();
  backoff waiting;
  while (true) {
    advance_and_await_arrival(one, fetchers, around, streams, who);
    if (one.look() == miss::state::arriving) around.rest(rest_ns);
    while (one.look() == miss::state::short_of_frames) {
      if (!one.help()) waiting.pause();
    }
    if (one.look() == miss::state::taken && !one.help()) waiting.pause();
    if (one.has_ended()) break;
  }
  look_after_transfers(with, around);
  one.note_end();
  return one.now();
}

}  // namespace far::engine
