// The way to the devices of one server, or of this process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "wire/device.h"
#include "wire/handshake.h"

namespace far::device_parts {

struct link_answer {
  enum class kind : std::uint8_t {
    answered,     // reply() is what the server said
    unreachable,  // nobody knows whether the call took effect
    forgotten,    // the server has lost the session and its devices
    impossible,   // the server has no devices, or does not let us in
  };
  kind how = kind::unreachable;
  std::vector<std::byte> bytes;  // answered: the encoded reply
  std::string why;               // otherwise, for people

  [[nodiscard]] static link_answer failed(kind how, std::string why) { return {how, {}, std::move(why)}; }
};

// One call at a time.
class device_link {
 public:
  virtual ~device_link() = default;

  // How long a server may be out of reach, and then take to answer. Not `again`: it is tried once. Once `given_up` is
  // true, a link that waits for a server ends its wait within a few tenths of a second. It outlives the link.
  struct patience {
    std::uint64_t reach_ns = 0;
    std::uint64_t answer_ns = 0;
    bool again = true;
    const std::atomic<bool>* given_up = nullptr;

    [[nodiscard]] bool is_given_up() const { return given_up != nullptr && given_up->load(); }
  };
  // Asks, and waits for the answer. The call is repeated over new connections.
  [[nodiscard]] virtual link_answer ask(const wire::device_request& asked, const patience& how) = 0;

  // Shows the server that its client lives, if it has not heard of it for a while. Waits for a second at most.
  enum class health : std::uint8_t { alive, silent, forgotten };
  [[nodiscard]] virtual health keep_alive() { return health::alive; }

  // Has the server end all devices of this link now, whatever they are doing, over a new connection if need be. Nothing
  // is asked over it after that. False: the server cannot be told, and keeps them for the lease. Links whose devices
  // end with them tell nobody.
  [[nodiscard]] virtual bool leave(const patience&) { return true; }

  // Of the server's process; all zero: unknown.
  [[nodiscard]] virtual wire::server_id identity() const { return {}; }

  // For messages: "tcp://cache1:7070".
  [[nodiscard]] virtual const std::string& peer() const = 0;
};

}  // namespace far::device_parts
