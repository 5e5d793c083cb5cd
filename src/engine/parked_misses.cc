#include "engine/parked_misses.h"

#include <algorithm>
#include <mutex>

#include "base/lock_guard.h"

namespace far::engine {
namespace {

// How long poll() is called as often as possible after it last found something; then ever more rarely.
constexpr std::uint64_t eager_ns = 50'000;
constexpr std::uint64_t longest_pause_ns = 200'000;

}  // namespace

parked_misses::parked_misses(engine& with, host& around, const fetcher_pool& fetchers, miss_waiter& fibers)
    : engine_(with), host_(around), fetchers_(fetchers), fibers_(fibers), waiting_(fibers) {
  engine_.set_listener(waiting_);
}

miss::state parked_misses::resolve(wanted_page wanted, miss_waiter::place from) noexcept {
  miss one(engine_, host_, wanted);
  one.make_room();
  while (true) {
    fetcher* const fetcher = fetchers_.try_lock(host_.preferred_fetcher());
    if (fetcher == nullptr) {
      one.be_taken();
    } else {
      fetcher->lock.assert_held();
      const lock_guard guard(fetcher->lock, std::adopt_lock);
      one.advance(*fetcher, fibers_.streams());
    }
    wait(one, from);
    static_cast<void>(one.look());
    if (one.has_ended()) break;
  }
  look_after_transfers(engine_, host_);
  one.note_end();
  return one.now();
}

void parked_misses::wait(miss& one, miss_waiter::place from) noexcept {
  using reason = waiting_fibers::reason;
  const miss::state now = one.look();
  if (now == miss::state::arriving || (now == miss::state::taken && engine_.view().on_its_way(one.page()))) {
    waiting_.wait_for_page(engine_.view().words(), one.page(), from);
  } else if (now == miss::state::short_of_frames) {
    if (!one.help()) waiting_.wait_for(reason::frame, from);
  } else if (now == miss::state::taken) {
    if (!one.help()) waiting_.wait_for(fetchers_.free_flights() == 0 ? reason::flight : reason::turn, from);
  }
}

std::uint64_t parked_misses::poll() noexcept {
  if (serve_the_scarce()) {
    idle_since_ns_.store(0, std::memory_order_relaxed);
    return 0;
  }
  if (!engine_.transfers().under_way()) return no_poll;
  const std::uint64_t now_ns = engine_.now_ns();
  std::uint64_t since_ns = idle_since_ns_.load(std::memory_order_relaxed);
  if (since_ns == 0) idle_since_ns_.store(since_ns = now_ns, std::memory_order_relaxed);
  const std::uint64_t idle_ns = now_ns - since_ns;
  return idle_ns < eager_ns ? 0 : std::min(idle_ns / 8, longest_pause_ns);
}

// Returns whether poll() is to be called again at once.
bool parked_misses::serve_the_scarce() noexcept {
  using reason = waiting_fibers::reason;
  bool progress = help(engine_, host_, caller::of_program);
  if (waiting_.any(reason::frame) && !engine_.eviction().has_frame_for_miss()) {
    const engine_section inside(host_);
    progress |= engine_.eviction().reclaim();
  }
  if (engine_.transfers().has_left()) host_.wake_background();
  if (waiting_.any(reason::frame) && engine_.eviction().has_frame_for_miss()) {
    waiting_.wake(reason::frame, static_cast<std::size_t>(std::max<std::int64_t>(1, engine_.eviction().free_frames())));
  }
  if (waiting_.any(reason::flight)) waiting_.wake(reason::flight, fetchers_.free_flights());
  waiting_.wake(reason::turn, ~std::size_t{0});
  return progress || waiting_.any(reason::frame) || waiting_.any(reason::flight) || waiting_.any(reason::turn);
}

}  // namespace far::engine
