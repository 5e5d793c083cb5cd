// The devices of one session, and their calls.
//
//     client's message -> device_calls -> device_shelf -> device_body, a process -> (socket) -> plugin
//
// Nothing here waits: a call that is under way is asked for again. A call that changes a device takes effect once. Its
// number and its reply are remembered until the next one, so a client may repeat it on another connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_mutex.h"
#include "server/devices/body.h"
#include "server/devices/function_processes.h"
#include "server/devices/host.h"
#include "server/devices/owed_room.h"
#include "server/store.h"
#include "wire/device.h"

namespace far::server {

// The blocks that a device's process and its last reply are counted as, beside its room.
inline constexpr std::uint64_t blocks_of_device = 2;
inline constexpr std::size_t most_devices_of_session = 64;

// Thread-safe.
class device_shelf final : public session_burden {
 public:
  device_shelf(std::shared_ptr<device_host> host, const std::shared_ptr<session>& owner);
  ~device_shelf() override;

  // Of this session; it gets one. nullptr: it has ended.
  [[nodiscard]] static std::shared_ptr<device_shelf> of(session& owner, const std::shared_ptr<device_host>& host);

  void end() noexcept override;

  // Whether a device of that number exists, or is lost and not yet destructed.
  [[nodiscard]] bool has(std::uint64_t number);
  enum class addition : std::uint8_t { added, there, too_many, no_process, ended };
  // A new one, which has taken the room. It is to be constructed by a step().
  [[nodiscard]] addition add(std::uint64_t number, const loaded_plugin& plugin, std::uint64_t room_bytes,
                             std::uint64_t room_blocks);

  // Goes on with a call. Returns the length of the encoded reply in `into`, or nothing: ask again. Requires: `encoded`
  // is what `asked` was decoded from, and `into` has room for the longest reply.
  [[nodiscard]] std::optional<std::size_t> step(const wire::device_request& asked, std::span<const std::byte> encoded,
                                                std::uint64_t now_ns, std::span<std::byte> into);

  // Whether a connection of the session may go to the device's process. Not to one whose tenant's rates are limited:
  // nobody would count there.
  [[nodiscard]] bool may_hand_over(std::uint64_t number);
  // Gives it a copy of the socket. False: it stays here.
  [[nodiscard]] bool hand_over(std::uint64_t number, int socket, std::uint64_t cookie);

  // The processes that call functions of plugins.
  [[nodiscard]] function_processes& functions() { return functions_; }

  // Ends calls whose time is up, and lets go of devices whose processes have ended.
  void look_after(std::uint64_t now_ns);

 private:
  struct device {
    std::unique_ptr<device_body> body;  // nullptr: it is lost
    std::string plugin;
    std::shared_ptr<plugin_counters> counters;
    std::uint64_t longest_ns = 0;  // that a call may take
    std::uint64_t room_blocks = 0;
    // The call under way; 0: none.
    std::uint64_t call = 0;
    wire::device_op op = wire::device_op::list;
    std::uint64_t began_ns = 0;
    std::uint64_t until_ns = 0;  // the end of its time
    // The last one that was to change it.
    std::uint64_t changed_by = 0;
    std::vector<std::byte> reply{};  // empty: a later call has lost the device
    bool is_direct = false;          // its process has been given a connection
    direct_calls direct{};           // as seen last
    // The call over a connection of the process's own that has lost the device; 0: none.
    std::uint64_t lost_by = 0;
    wire::device_outcome lost_how = wire::device_outcome::lost;
  };
  using devices = std::map<std::uint64_t, device>;

  // Goes on with the call under way; false: it has not ended. `reply`, if not nullptr: gets the encoded reply.
  [[nodiscard]] bool advance(devices::iterator which, std::uint64_t now_ns, std::vector<std::byte>* reply)
      FAR_REQUIRES(lock_);
  // Ends the device if a call that has come to its process directly takes too long, or has ended the process.
  void follow_direct(device& which, bool has_ended, std::uint64_t now_ns) FAR_REQUIRES(lock_);
  // Requires: its process has ended, and there is no call under way here; there may be a direct one.
  void lose_between_calls(device& which, std::uint64_t now_ns) FAR_REQUIRES(lock_);
  // Notes what the process says about its direct calls. False: it says nothing, or is just about to write it.
  static bool count_direct(device& which) noexcept;
  // When its process can begin a call that comes by the server. Requires: none has come by it.
  [[nodiscard]] static std::uint64_t free_at_ns(device& which, std::uint64_t now_ns) noexcept;
  [[nodiscard]] bool is_unlimited() const;
  void count(const device& which, wire::device_op op, wire::device_outcome outcome, std::uint64_t now_ns)
      FAR_REQUIRES(lock_);
  void lose(device& which) FAR_REQUIRES(lock_);
  void remove(devices::iterator which) FAR_REQUIRES(lock_);

  const std::shared_ptr<device_host> host_;
  const std::weak_ptr<session> owner_;
  function_processes functions_;
  owed_room owed_;
  thread_mutex lock_;  // after the store's
  devices all_ FAR_GUARDED_BY(lock_);
  bool ended_ FAR_GUARDED_BY(lock_) = false;
};

}  // namespace far::server
