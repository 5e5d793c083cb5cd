#include "store.h"

#include <time.h>

#include "command.h"

namespace cached {
namespace {

std::int64_t seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec;
}

}  // namespace

coarse_clock::coarse_clock()
    : started_monotonic_(seconds_of(CLOCK_MONOTONIC_COARSE) - before_start),
      started_unix_(seconds_of(CLOCK_REALTIME_COARSE) - before_start) {}

std::uint32_t coarse_clock::now() const {
  return static_cast<std::uint32_t>(seconds_of(CLOCK_MONOTONIC_COARSE) - started_monotonic_);
}

std::uint32_t coarse_clock::expiry(std::int32_t requested) const {
  constexpr std::int32_t longest_delta = 60 * 60 * 24 * 30;
  constexpr std::uint32_t past = 1;
  if (requested == 0) return 0;
  if (requested < 0) return past;
  if (requested <= longest_delta) return now() + static_cast<std::uint32_t>(requested);
  if (requested <= started_unix_) return past;
  return static_cast<std::uint32_t>(requested - started_unix_);
}

void counters::reset() {
  for (auto* counter :
       {&gets,       &get_hits,     &get_misses,  &get_expired,   &get_flushed, &sets,        &flushes,   &touches,
        &touch_hits, &touch_misses, &delete_hits, &delete_misses, &incr_hits,   &incr_misses, &decr_hits, &decr_misses,
        &cas_hits,   &cas_misses,   &cas_bad,     &evictions,     &total_items, &too_large}) {
    counter->store(0, std::memory_order_relaxed);
  }
}

store::state store::state_of(std::uint64_t cas, std::uint32_t stored, std::uint32_t expires) const {
  const std::uint32_t now = clock_.now();
  if (cas <= flushed_cas_.load(std::memory_order_relaxed)) return state::flushed;
  const std::uint32_t flushed = flushed_second_.load(std::memory_order_relaxed);
  if (flushed != 0 && flushed <= now && stored <= flushed) return state::flushed;
  return expires != 0 && expires <= now ? state::expired : state::live;
}

void store::flush(std::uint32_t at) {
  seen.flushes.fetch_add(1, std::memory_order_relaxed);
  flushed_second_.store(at, std::memory_order_relaxed);
  if (at <= clock_.now()) flushed_cas_.store(next_cas(), std::memory_order_relaxed);
}

bool store::seen_get(bool found) {
  seen.gets.fetch_add(1, std::memory_order_relaxed);
  (found ? seen.get_hits : seen.get_misses).fetch_add(1, std::memory_order_relaxed);
  return found;
}

bool store::seen_delete(bool found) {
  (found ? seen.delete_hits : seen.delete_misses).fetch_add(1, std::memory_order_relaxed);
  return found;
}

bool store::seen_touch(bool found) {
  seen.touches.fetch_add(1, std::memory_order_relaxed);
  (found ? seen.touch_hits : seen.touch_misses).fetch_add(1, std::memory_order_relaxed);
  return found;
}

void store::seen_gone(state its) {
  (its == state::expired ? seen.get_expired : seen.get_flushed).fetch_add(1, std::memory_order_relaxed);
}

std::optional<std::uint64_t> store::counted(const char* value, bool up, std::uint64_t delta) {
  std::uint64_t before = 0;
  if (!parse(value, before)) return std::nullopt;
  (up ? seen.incr_hits : seen.decr_hits).fetch_add(1, std::memory_order_relaxed);
  return up ? before + delta : before > delta ? before - delta : 0;
}

store_outcome store::judge(store_mode mode, std::uint64_t present, std::uint64_t wanted) {
  seen.sets.fetch_add(1, std::memory_order_relaxed);
  if (mode == store_mode::cas) {
    (present == 0 ? seen.cas_misses : present == wanted ? seen.cas_hits : seen.cas_bad).fetch_add(1);
    if (present == 0) return store_outcome::not_found;
    return present == wanted ? store_outcome::stored : store_outcome::exists;
  }
  const bool allowed = mode == store_mode::set || (mode == store_mode::add) == (present == 0);
  return allowed ? store_outcome::stored : store_outcome::not_stored;
}

}  // namespace cached
