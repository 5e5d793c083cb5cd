// A thread of the simulated program that uses one device after another (far/device.h), through the product's client and
// over the simulated network, and knows what each must hold.
//
// A call either takes effect once, or fails for a reason that there was. One that could not reach a server may have
// taken effect; what the device answers next says which.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/device_group.h"
#include "ledger.h"
#include "random_source.h"
#include "scheduler.h"

namespace far::simulation {

struct device_counts {
  std::uint64_t calls = 0;
  std::uint64_t constructions = 0;
  std::uint64_t doubtful = 0;   // that could not reach a server
  std::uint64_t happened = 0;   // of them: those that took effect, as was found later
  std::uint64_t crashed = 0;    // calls
  std::uint64_t timed_out = 0;  // calls
  std::uint64_t lost = 0;       // devices

  device_counts& operator+=(const device_counts& other);
};

struct device_user_options {
  device_parts::device_tier tier;
  std::uint64_t slice_ns = 0;
  std::uint64_t deadline_ms = 0;
  bool is_calm = false;                  // no call crashes or hangs
  bool is_durable = false;               // there are so many copies that servers in trouble do not lose it
  std::function<std::uint64_t()> kills;  // how many devices' processes have been ended so far
};

class device_user {
 public:
  device_user(scheduler& threads, random_source& random, const simulated_clock& time, device_user_options chosen);

  // The body of its thread. It ends after end(), when every byte has been compared.
  void run();
  void end() { is_to_end_ = true; }
  [[nodiscard]] bool has_ended() const { return has_ended_; }

  // Whether all its copies have taken a change that began at that time or later, so that each of them alone could go
  // on. Always, if nothing is promised.
  [[nodiscard]] bool is_whole_since(std::uint64_t ns) const {
    return has_ended_ || !chosen_.is_durable || (whole_since_ns_ >= ns && whole_since_ns_ != 0);
  }
  [[nodiscard]] const device_counts& counted() const { return counts_; }

 private:
  using reason = device_error::reason;

  void rest(std::uint64_t ns);
  void construct();
  void do_something();
  [[nodiscard]] wire::device_request draw(std::vector<std::byte>& bytes);
  // Makes the call, and compares. Returns whether it was answered.
  bool call(const wire::device_request& asked);
  void compare(const wire::device_request& asked, const ledger::answer& got);
  void fail_for(const wire::device_request& asked, const device_error& failure);
  void verify_all();
  // Of a change: when it began, and how many devices had been killed by then.
  void note_changed(std::uint64_t began_ns, std::uint64_t kills_before);

  scheduler& threads_;
  random_source& random_;
  const simulated_clock& time_;
  const device_user_options chosen_;
  std::unique_ptr<device_parts::device_group> device_;
  std::vector<ledger> possible_;  // what it may hold; several after a call whose end is not known
  std::uint64_t changes_ = 0;
  std::uint64_t whole_since_ns_ = 0;  // 0: it is not known to be
  bool is_promised_ = false;          // it was whole, and no call of ours has ended a copy since
  std::uint64_t kills_when_whole_ = 0;
  bool is_to_end_ = false;
  bool has_ended_ = false;
  device_counts counts_;
};

}  // namespace far::simulation
