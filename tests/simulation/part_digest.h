// A function of the simulation's on the bytes of a page, as programs have them called on memory servers
// (far/compute.h).
#pragma once

#include <cstdint>
#include <span>

#include "far/plugin.h"

namespace far::simulation {

// Depends on each word and on its place.
struct part_digest {
  static constexpr const char* plugin = "digest";
  static constexpr const char* version = "7";
  static constexpr std::uint32_t number = 1;

  using element = std::uint64_t;
  struct arguments {
    std::uint64_t factor = 1;
  };
  struct result {
    std::uint64_t count = 0;
    std::uint64_t digest = 0;
  };

  static result map(std::span<const element> part, const arguments& with) {
    result found{part.size(), 0};
    for (const element one : part) found.digest = (found.digest + one) * (with.factor | 1) + 1;
    return found;
  }
  static void combine(result& all, const result& next) {
    all.count += next.count;
    all.digest ^= next.digest;
  }
};

// Others have the same numbers as what devices are asked to fail by: ledger_refuse, ledger_crash, ledger_hang.
[[nodiscard]] inline const far_device_functions& digest_plugin() {
  static const far_device_functions all = plugin::detail::functions_of<part_digest>();
  return all;
}

}  // namespace far::simulation
