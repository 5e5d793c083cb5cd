// The plugins of a server: their files, names, and what devices of them may take.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_mutex.h"
#include "base/units.h"
#include "server/devices/body.h"
#include "server/devices/process.h"

namespace far::server {

class device_shelf;

// One `--plugin FILE[:OPTIONS]`.
struct plugin_choice {
  std::string file;
  std::uint64_t deadline_ns = 10'000'000'000;  // the longest that a call may take
  std::uint64_t room_bytes = 256 * mib;        // the most that one device may take
  std::string options;                         // for the devices

  bool operator==(const plugin_choice&) const = default;
};
// Options are KEY=VALUE with commas between: `deadline` and `room` are ours, all others go to the devices. Errors:
// values that are none, a deadline above a minute.
[[nodiscard]] result<plugin_choice> parse_plugin(const std::string& text);

// Of all devices of a plugin. Calls are those of operations, not those that construct or copy devices. Any thread
// counts.
struct plugin_counters {
  std::atomic<std::uint64_t> devices{0};  // that there are
  std::atomic<std::uint64_t> constructed{0};
  std::atomic<std::uint64_t> ended{0};  // between two calls
  static constexpr std::size_t outcomes = static_cast<std::size_t>(wire::last_device_outcome) + 1;
  std::array<std::atomic<std::uint64_t>, outcomes> calls{};
  std::atomic<std::uint64_t> call_ns{0};  // that all calls took together
};

struct loaded_plugin {
  plugin_choice chosen;
  std::string name;
  std::string version = {};
  std::shared_ptr<plugin_counters> counters = std::make_shared<plugin_counters>();
};

// Thread-safe. Outlives its shelves.
class device_host {
 public:
  // The most devices of a server, each of which is a process.
  static constexpr std::size_t most_devices = 256;

  // Asks each plugin for its name, in a process of its own. `program`: what to start for a device; empty: this one
  // again. Errors: a file that is no plugin, two of one name.
  [[nodiscard]] static result<std::shared_ptr<device_host>> start(const std::vector<plugin_choice>& chosen,
                                                                  std::string program = "");

  // Plugins that need no loading, and devices that `begin` makes: for a simulation, which has no processes.
  using starter =
      std::function<result<std::unique_ptr<device_body>>(const loaded_plugin& plugin, std::size_t window_bytes)>;
  [[nodiscard]] static std::shared_ptr<device_host> simulate(std::vector<loaded_plugin> plugins, starter begin);

  [[nodiscard]] const loaded_plugin* find(std::string_view name) const;
  [[nodiscard]] const std::vector<loaded_plugin>& plugins() const { return plugins_; }
  // As the reply to wire::device_op::list.
  [[nodiscard]] const std::string& list() const { return list_; }
  // A new device, not yet constructed, with no more memory than that, and a window of that size if it can have one.
  // Errors: the system gives no process.
  [[nodiscard]] result<std::unique_ptr<device_body>> start_device(const loaded_plugin& plugin, std::uint64_t room_bytes,
                                                                  std::size_t window_bytes = 0);

  // Counts the devices. False: there are too many.
  [[nodiscard]] bool admit();
  void dismiss() { devices_.fetch_sub(1); }
  [[nodiscard]] std::size_t devices() const { return devices_.load(); }

  // From now on look_after() looks after it, too.
  void watch(const std::shared_ptr<device_shelf>& added);
  // Ends calls whose time is up although nobody waits for them any more, and lets go of devices that have ended between
  // calls. Call it often.
  void look_after(std::uint64_t now_ns);

 private:
  [[nodiscard]] result<std::string> describe(const plugin_choice& chosen);

  std::string program_;
  starter start_;  // empty: devices are processes
  std::vector<loaded_plugin> plugins_;
  std::string list_;
  std::atomic<std::size_t> devices_{0};
  graveyard dead_;
  thread_mutex lock_;
  std::vector<std::weak_ptr<device_shelf>> shelves_ FAR_GUARDED_BY(lock_);
};

}  // namespace far::server
