// The processes that call the functions of plugins (far/compute.h) for a session: one for each plugin, begun when it is
// asked first. Each is a device like those that clients construct (process.h), with nothing in it; the server asks it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_mutex.h"
#include "server/devices/body.h"
#include "server/devices/host.h"
#include "server/devices/owed_room.h"
#include "server/store.h"

namespace far::server {

// Thread-safe.
class function_processes {
 public:
  function_processes(std::shared_ptr<device_host> host, std::weak_ptr<session> owner)
      : host_(std::move(host)), owed_(std::move(owner)) {}
  ~function_processes() { end(); }
  function_processes(const function_processes&) = delete;
  function_processes& operator=(const function_processes&) = delete;

  // Kills all, and begins no others.
  void end() noexcept;

  // A call of one connection, from its first step to its last.
  struct call {
    std::uint64_t until_ns = 0;  // the end of its time
    std::uint32_t number = 0;    // of the function
    // Writes so many bytes of arguments. Called once, when the process is free. False: it refuses.
    std::size_t argument_bytes = 0;
    std::function<bool(std::span<std::byte> arguments)> fill;
  };
  // `refused`: there is no such process, it has failed a moment ago, or has said no, crashed, or taken too long now.
  enum class step : std::uint8_t { wait, done, refused };
  // Goes on with it. `reply`: gets what the function has said. Requires: as long as somebody has `asked`, it comes back
  // until it is not told to wait.
  [[nodiscard]] step go_on(session& caller, const loaded_plugin& plugin, const std::shared_ptr<call>& asked,
                           std::uint64_t now_ns, std::vector<std::byte>& reply);

  // Why the last call for the plugin was refused; "" if none was.
  [[nodiscard]] std::string why(const std::string& plugin);
  // A call was refused by whoever made it.
  void note_refusal(const std::string& plugin, std::string text);

  // Ends those that take too long although nobody waits for them any more, that have ended by themselves, and that
  // nobody has asked for a while.
  void look_after(std::uint64_t now_ns);

 private:
  struct runner {
    std::unique_ptr<device_body> body;  // nullptr: there is none
    std::shared_ptr<plugin_counters> counters;
    std::uint64_t room_blocks = 0;
    bool is_constructed = false;
    bool is_busy = false;
    std::weak_ptr<call> asked_by;  // nobody: it is constructed, or whoever has asked is gone
    std::uint64_t began_ns = 0;
    std::uint64_t until_ns = 0;
    std::uint64_t used_ns = 0;  // when it was asked last
    std::uint64_t calls = 0;
    std::uint64_t rests_until_ns = 0;  // after a failure
  };

  [[nodiscard]] bool has(const std::string& plugin, std::uint64_t now_ns);
  [[nodiscard]] bool add(const loaded_plugin& plugin, std::uint64_t room_bytes, std::uint64_t room_blocks,
                         std::uint64_t now_ns);
  // Takes what the call under way has come to. Nothing: it is under way still, or the one who has asked fetches it.
  enum class ending : std::uint8_t { under_way, idle, ours, failed };
  [[nodiscard]] ending take(const std::string& plugin, runner& one, const call* ours, std::uint64_t now_ns,
                            std::vector<std::byte>& reply) FAR_REQUIRES(lock_);
  [[nodiscard]] static bool begin(runner& one, const std::shared_ptr<call>& asked, std::uint64_t now_ns);
  void lose(runner& one) noexcept FAR_REQUIRES(lock_);

  const std::shared_ptr<device_host> host_;
  owed_room owed_;
  thread_mutex lock_;  // after the store's
  std::map<std::string, runner> all_ FAR_GUARDED_BY(lock_);
  std::map<std::string, std::string> refusals_ FAR_GUARDED_BY(lock_);  // the last one of each plugin
  bool ended_ FAR_GUARDED_BY(lock_) = false;
};

}  // namespace far::server
