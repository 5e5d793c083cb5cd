// What time it is for the client of devices, and how long it waits for what. A simulation has times of its own.
#pragma once

#include <cstdint>

#include "platform/clock.h"

namespace far::device_parts {

[[nodiscard]] inline const platform::clock& system_clock() {
  static const platform::monotonic_clock time;
  return time;
}

struct device_times {
  static constexpr std::uint64_t ms = 1'000'000;
  static constexpr std::uint64_t s = 1'000 * ms;

  const platform::clock* clock = &system_clock();
  // Between attempts to reach a server.
  std::uint64_t first_pause_ns = 5 * ms;
  std::uint64_t longest_pause_ns = 500 * ms;
  // Well below the silence that servers permit, and often enough to notice soon that a copy is lost.
  std::uint64_t ping_after_ns = s;
  std::uint64_t ping_patience_ns = s;
  // Between attempts to make lost copies again, and for reaching a server that is to have one.
  std::uint64_t mending_pause_ns = s;
  std::uint64_t mending_reach_ns = 2 * s;
  // For a server to hear that the device ends.
  std::uint64_t farewell_ns = s;
  // Copies are looked at that often, however many calls there are.
  std::uint64_t longest_unlooked_ns = 5 * s;
  // A server looks after its calls that often; a call that it ends late is not given up before.
  std::uint64_t slack_ns = 3 * s;
  // A process starts before a device is constructed, which has so long at least, however short its calls are.
  std::uint64_t least_start_ns = 5 * s;
  // The longest call that any server permits.
  std::uint64_t longest_call_ns = 60 * s;
};

}  // namespace far::device_parts
