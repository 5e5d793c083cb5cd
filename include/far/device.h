// Remote devices (AIFM, sections 4.2.4 and 4.3): data that lies on a memory server together with the code that works on
// it, a plugin which the server's operator has loaded (far/plugin.h, docs/devices.md).
//
//     far::device words("tcp://cache1:7070,cache2:7070?copies=2", "sorted");
//     words.write(7, std::as_bytes(std::span(text)));
//     const std::vector<std::byte> first = words.compute(1);
//
// Every call waits for its answer and blocks the OS thread; a thread that runs fibers, too. A call that changes
// something takes effect once, however often connections break meanwhile.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "far/detail/api.h"

namespace far {

namespace device_parts {
class device_group;
}

// Why a call of a device has failed.
class FAR_API device_error : public std::runtime_error {
 public:
  enum class reason : std::uint8_t {
    bad_tier,     // the far tier's name
    refused,      // the device refuses the call; it goes on
    no_object,    // it has no such object; it goes on
    timed_out,    // the call took too long, and the copies that tried it are lost
    crashed,      // the device has ended its process in the call, and the copies that tried it are lost
    lost,         // all copies are lost; construct another
    unreachable,  // no server with a copy has answered in time, or lets us in
    no_plugin,    // no server has this plugin
    no_room,      // the quota, or the memory of the servers, is used up
  };
  device_error(reason why, const std::string& text) : std::runtime_error(text), why_(why) {}
  device_error(const device_error&) = default;
  device_error& operator=(const device_error&) = default;
  ~device_error() override;

  [[nodiscard]] reason why() const noexcept { return why_; }

 private:
  reason why_;
};

struct device_options {
  std::span<const std::byte> parameters;           // for the plugin
  std::size_t room_bytes = std::size_t{16} << 20;  // the most memory that it may take; the quota counts it
  // Of a call; a server may permit less, and permits a minute at most. To be constructed, a device has 5 s at least.
  std::chrono::milliseconds deadline = std::chrono::seconds(5);
};

// A plugin that a server has.
struct device_plugin {
  std::string name;
  std::string version;
  std::uint32_t interface_version = 0;
};

// Thread-safe: calls take turns. In the child of a fork it must not be used, not even destroyed.
class FAR_API device {
 public:
  // The most bytes of one call, each way.
  static constexpr std::size_t most_bytes = 1'048'000;

  // Constructs it on servers of the far tier `tcp://...` (docs/run.md has its options; `copies`, `token-file`,
  // `tenant`, `tls`, `ca` and `timeout` count here), or with `memory:?plugin=FILE` in this process, without any
  // protection from it. Tries one server after the other until there are as many copies as wanted; one suffices to
  // begin with. Throws device_error.
  device(std::string_view tier, std::string_view plugin, const device_options& options = {});
  // Destructs it on all servers that can be reached. Waits a second for each copy whose server is silent, and at most a
  // second for what is done behind the calls; longer only where a server's name is being looked up.
  ~device();
  device(device&&) noexcept;
  device& operator=(device&&) noexcept;

  // All of these throw device_error.
  [[nodiscard]] std::vector<std::byte> read(std::uint64_t object);
  void write(std::uint64_t object, std::span<const std::byte> bytes);
  void erase(std::uint64_t object);
  // What `opcode` means is the plugin's to say. With several copies, each does it.
  std::vector<std::byte> compute(std::uint32_t opcode, std::span<const std::byte> arguments = {});
  // The same for operations that change nothing: one copy does it, perhaps more than once.
  [[nodiscard]] std::vector<std::byte> ask(std::uint32_t opcode, std::span<const std::byte> arguments = {});

  // How many copies there are now. Lost ones are made again from the others, at the next call and at most once a
  // second, if the plugin can save and load.
  [[nodiscard]] std::size_t copies() const;

  // The plugins of the first server of the tier that answers. Throws device_error.
  [[nodiscard]] static std::vector<device_plugin> plugins_of(std::string_view tier);

 private:
  std::unique_ptr<device_parts::device_group> group_;
};

}  // namespace far
