// Threads of a test lose their processor at random basic blocks of code that is compiled with
// -fsanitize-coverage=trace-pc, so that what happens between two instructions once in a million runs happens in some of
// a thousand. Most give way to another thread; some sleep for so long that the others do a lot meanwhile. How often it
// happens changes from time to time, because where all threads stumble all the time none gets far.
//
// This file must not be compiled so.
#include <sched.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace {

constexpr std::array<std::uint64_t, 3> usual_distances{80, 800, 8'000};  // in blocks
constexpr unsigned stops_at_a_distance = 32;
constexpr long usual_sleep_ns = 50'000;
constexpr long long_sleep_ns = 10'000'000;  // a page leaves, and its place is another object's

std::atomic<std::uint64_t> threads{0};
thread_local constinit std::uint64_t blocks_left = 0;
thread_local constinit std::uint64_t state = 0;  // of a generator by Marsaglia (xorshift); never 0 once it is seeded
thread_local constinit std::uint64_t distance = 0;
thread_local constinit unsigned stops = 0;

std::uint64_t next_random() {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

[[gnu::noinline]] void stop_for_a_while() {
  if (state == 0) state = (threads.fetch_add(1, std::memory_order_relaxed) + 1) * 0x9e3779b97f4a7c15u;
  if (stops == 0) {
    distance = usual_distances[next_random() % usual_distances.size()];
    stops = stops_at_a_distance;
  }
  --stops;
  blocks_left = next_random() % (2 * distance);
  if (next_random() % 16 != 0) {
    sched_yield();
    return;
  }
  const long longest_ns = next_random() % 32 == 0 ? long_sleep_ns : usual_sleep_ns;
  const timespec pause{0, static_cast<long>(next_random() % longest_ns)};
  nanosleep(&pause, nullptr);
}

}  // namespace

extern "C" void __sanitizer_cov_trace_pc() {
  if (blocks_left-- == 0) stop_for_a_while();
}
