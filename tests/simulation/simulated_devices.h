// The devices of one simulated server, and the functions on its pages: its own shelf and calls (server/devices/), with
// plugins that run in the simulation in place of a process, take their time, crash and hang.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "random_source.h"
#include "server/devices/host.h"

namespace far::simulation {

struct device_speed {
  std::uint64_t longest_call_ns = 0;  // of one that does not hang
  std::uint64_t deadline_ns = 0;      // that the server permits
  // The same for functions, and the start of their process: the requests behind a function on its connection wait.
  std::uint64_t longest_function_ns = 0;
};

class simulated_devices {
 public:
  simulated_devices(random_source& random, const device_speed& chosen);
  simulated_devices(const simulated_devices&) = delete;
  simulated_devices& operator=(const simulated_devices&) = delete;

  [[nodiscard]] const std::shared_ptr<server::device_host>& host() const { return host_; }
  // The processes of some of them end, as when the kernel needs their memory.
  struct killed {
    std::uint64_t devices = 0;
    std::uint64_t function_processes = 0;
  };
  killed kill_some();
  [[nodiscard]] std::size_t alive() const { return bodies_.size(); }

 private:
  class body;

  random_source& random_;
  const device_speed chosen_;
  std::vector<body*> bodies_;
  std::shared_ptr<server::device_host> host_;
};

}  // namespace far::simulation
