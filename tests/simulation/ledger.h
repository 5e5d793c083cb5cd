// The plugin of the simulation: objects and a sum, which notice a change that is executed twice, or one that was sent
// before another that they have executed. It is also the model of what a device holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "far/plugin.h"
#include "wire/device.h"

namespace far::simulation {

enum ledger_code : std::uint32_t {
  ledger_add = 1,      // a number to the sum; returns the summary
  ledger_summary = 2,  // changes nothing
  ledger_refuse = 3,   // changes nothing, and throws
  ledger_crash = 4,    // ends the device
  ledger_hang = 5,     // never returns
};

// What it holds. Each change has a number, greater than those before; a reply is a function of the changes and their
// order.
class ledger {
 public:
  static constexpr std::uint64_t most_objects = 64;
  // An object and the number of the change that writes or erases it share 64 bits.
  [[nodiscard]] static std::uint64_t name(std::uint64_t object, std::uint64_t change) {
    return change * most_objects + object;
  }

  struct answer {
    wire::device_outcome outcome = wire::device_outcome::ok;
    std::vector<std::byte> bytes;
    bool operator==(const answer&) const = default;
  };
  // What a device answers to it. Requires: neither ledger_crash nor ledger_hang.
  [[nodiscard]] answer apply(const wire::device_request& asked);

  [[nodiscard]] std::vector<std::byte> save() const;
  void load(std::span<const std::byte> all);

  bool operator==(const ledger&) const = default;

 private:
  void note_change(std::uint64_t change, std::uint64_t object, std::span<const std::byte> bytes);
  [[nodiscard]] answer summary() const;

  std::map<std::uint64_t, std::vector<std::byte>> objects_;
  std::uint64_t sum_ = 0;
  std::uint64_t last_change_ = 0;
  std::uint64_t history_ = 0;  // a hash of all changes in their order
};

// As a plugin. Its parameters: the number of the device in the run.
[[nodiscard]] const far_device_functions& ledger_plugin();

}  // namespace far::simulation
