// The copies of one device: which there are, what each is told, and new ones for those that are lost.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "device/device_link.h"
#include "device/device_times.h"
#include "far/device.h"
#include "wire/device.h"

namespace far::device_parts {

struct device_tier {
  using opener = std::function<result<std::unique_ptr<device_link>>()>;

  std::vector<opener> servers;
  std::size_t copies = 1;
  std::uint64_t patience_ns = 10'000'000'000;  // for a server to answer, beside the time of a call
  bool has_servers = true;                     // that forget a client which is silent
  bool has_keeper = true;                      // a thread that looks after them; otherwise the device's owner does
  device_times times{};
  void (*random)(std::span<std::byte>) = wire::fill_random;

  // Errors: no such far tier, or one without devices.
  [[nodiscard]] static result<device_tier> parse(std::string_view name);
};

// The name of this process as a peer.
inline constexpr const char* local_peer = "memory:";

// A device_error for what a server has said about a device of `plugin`. Requires: it is a failure.
[[nodiscard]] device_error failure_of(wire::device_outcome outcome, const std::string& peer, std::string_view plugin,
                                      std::string_view text);

// Thread-safe.
class device_group {
 public:
  // Constructs the device. Throws device_error.
  device_group(device_tier tier, std::string_view plugin, const device_options& chosen);
  // Waits for nothing that the keeper has under way: for its ping, and for each copy to hear of the end.
  ~device_group();
  device_group(const device_group&) = delete;
  device_group& operator=(const device_group&) = delete;

  // Throws device_error.
  std::vector<std::byte> call(wire::device_request asked);
  [[nodiscard]] std::size_t copies() const;
  // Shows the servers that we live, and replaces copies that are lost. Call it often if there is no keeper.
  void look_after();

 private:
  struct copy {
    std::unique_ptr<device_link> link;
    std::size_t server = 0;
    std::uint64_t silent_since_ns = 0;  // as the keeper has found it, beside one that is not; 0: it is not
    bool is_in_doubt = false;           // it was silent last: has it taken the last change, is it there at all?
  };
  // What a copy has made of a call.
  struct told {
    enum class fate : std::uint8_t {
      answered,  // by the device
      died,      // the device, in this call
      gone,      // it was lost before, or its server has forgotten it
      silent,    // its server cannot be reached
    };
    fate how = fate::answered;
    wire::device_outcome outcome = wire::device_outcome::ok;
    std::vector<std::byte> bytes;
    device_error failure;  // unless the outcome is ok
  };

  [[nodiscard]] told tell(device_link& link, const wire::device_request& asked, const device_link::patience& how) const;
  [[nodiscard]] std::vector<std::byte> ask_one(const wire::device_request& asked);
  [[nodiscard]] std::vector<std::byte> change_all(const wire::device_request& asked);
  // What the first copy that answers has made of it, or that all are silent, or gone.
  [[nodiscard]] told tell_all(const wire::device_request& asked);
  // Gives up those that are in doubt, if another has taken the call, or has died of it, and one that is not lives.
  [[nodiscard]] told give_up_doubtful(const wire::device_request& asked, told reached);
  // What the first that is not in doubt and not lost says; silent, or if there is none, gone or died. Lost ones are
  // dropped. `why`: the failure, if there is none from the start.
  [[nodiscard]] told ask_witness(const wire::device_request& asked, device_error why);
  // One that changes nothing.
  [[nodiscard]] wire::device_request question();
  // Sends the change that is not settled again. Returns why it is still not settled, if it is not.
  [[nodiscard]] std::optional<device_error> settle();
  // Of a call that the device's owner waits for, of one that constructs a new copy, and of those that fill it.
  [[nodiscard]] device_link::patience usual() const;
  [[nodiscard]] device_link::patience little() const;
  [[nodiscard]] device_link::patience for_copying() const;
  [[nodiscard]] const std::atomic<bool>* given_up() const { return is_keeping_ ? &ends_ : nullptr; }
  [[nodiscard]] std::uint32_t deadline_ms() const;
  [[nodiscard]] std::uint64_t now() const { return tier_.times.clock->now_ns(); }
  void drop(std::size_t which);
  // For a server to hear of the end of what it has.
  [[nodiscard]] device_link::patience farewell() const;
  // The same, where nobody waits for the end of the device.
  [[nodiscard]] device_link::patience leaving() const;
  // Has the server end a copy that is not used, now or when it can be told.
  void abandon(std::unique_ptr<device_link> link, std::size_t server);
  // Tells servers that could not be told before, unless that was a moment ago.
  void end_abandoned();
  // Returns whether the server has none any more.
  [[nodiscard]] bool end_abandoned_on(std::size_t server);
  // nullptr: it cannot be constructed there, and failures_ says why.
  [[nodiscard]] std::unique_ptr<device_link> construct_on(std::size_t server, device_link::patience how);
  [[nodiscard]] bool is_used(std::size_t server, const device_link* link) const;
  // Makes new copies, where there are too few, one is heard, and the last try was not a moment ago.
  void mend();
  // False: one of them has not done its part. If that is `from`, it is in doubt from then on.
  [[nodiscard]] bool copy_contents(copy& from, device_link& into);
  // The first that is not in doubt; nullptr: there is none.
  [[nodiscard]] copy* first_heard();
  void keep();
  [[nodiscard]] bool waits_for_next_round();
  void look_after_copies();
  // Gives up those that have been silent for longer than the patience. Requires: is_in_doubt tells who is not alive.
  void give_up_silent();

  const device_tier tier_;
  const std::string plugin_;
  std::vector<std::byte> construction_;
  const std::uint64_t room_bytes_;
  const std::uint64_t deadline_ns_;

  mutable std::mutex lock_;
  std::vector<copy> copies_;
  // Copies that were given up half made, and that their servers may have still.
  std::vector<copy> abandoned_;
  std::uint64_t calls_ = 0;
  // A change that no copy has answered, while there were copies. Any of them may have taken it, so they may differ, and
  // it comes before everything else.
  std::optional<wire::device_request> unsettled_;
  std::vector<std::byte> unsettled_bytes_;
  bool is_keeping_ = false;  // it is the keeper's turn, for whose end the destructor waits
  std::uint64_t mend_at_ns_ = 0;
  std::uint64_t leave_at_ns_ = 0;       // servers are told again that copies are abandoned
  std::uint64_t looked_at_ns_ = 0;      // after the copies
  std::vector<device_error> failures_;  // of the last constructions

  std::mutex ending_lock_;
  std::condition_variable ending_;
  std::atomic<bool> ends_ = false;  // changes with ending_lock_
  std::thread keeper_;
};

}  // namespace far::device_parts
