// What a tenant may ask of a server: connections, devices, requests and bytes a second.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace far::server {

// 0: not limited.
struct tenant_limits {
  std::uint64_t connections = 0;
  std::uint64_t requests = 0;  // a second
  std::uint64_t bytes = 0;     // a second, of payload, both ways together
  std::uint64_t devices = 0;

  bool operator==(const tenant_limits&) const = default;
};

// "connections:64,devices:16,requests:20000,bandwidth:200M", in any order, each at most once. Errors show a right
// example.
[[nodiscard]] result<tenant_limits> parse_tenant_limits(const std::string& text);

// How much passes in a second, with bursts of burst_ns: a token bucket, of which only the time is kept until which what
// has passed is paid for. Thread-safe; a change costs no more than the burst.
class rate_limit {
 public:
  static constexpr std::uint64_t burst_ns = 100'000'000;

  // From now on; 0: everything passes. A limit begins without a burst, so that it cannot be had by beginning again.
  void set(std::uint64_t units_a_second, std::uint64_t now_ns);
  [[nodiscard]] std::uint64_t units_a_second() const { return units_a_second_.load(std::memory_order_relaxed); }

  // When the next may pass; in the past: at once.
  [[nodiscard]] std::uint64_t free_at_ns() const;
  // So many have passed. They may be more than fit at once: then the next ones wait the longer.
  void charge(std::uint64_t units, std::uint64_t now_ns);

 private:
  std::atomic<std::uint64_t> units_a_second_{0};
  std::atomic<std::uint64_t> paid_until_ns_{0};
};

// The rates of one tenant, over all its connections of all loops.
class tenant_rates {
 public:
  // A request that must wait is looked at again no sooner than this, however many connections wait with it.
  static constexpr std::uint64_t pause_ns = 5'000'000;

  void set(const tenant_limits& limits, std::uint64_t now_ns);
  [[nodiscard]] bool are_limited() const { return requests_.units_a_second() != 0 || bytes_.units_a_second() != 0; }

  // When a request may be handled; 0: now. Notes that it is delayed.
  [[nodiscard]] std::uint64_t wait_until_ns(std::uint64_t now_ns);
  // It has been handled, with so many bytes of payload in both directions.
  void charge(std::uint64_t bytes, std::uint64_t now_ns);

  // How many requests one connection should have on the way, at most `usual`, so that none waits longer than a client
  // waits for an answer.
  [[nodiscard]] std::uint32_t outstanding(std::uint32_t usual) const;
  // How often a connection had to wait, since the tenant came.
  [[nodiscard]] std::uint64_t delays() const { return delays_.load(std::memory_order_relaxed); }

 private:
  rate_limit requests_;
  rate_limit bytes_;
  std::atomic<std::uint64_t> delays_{0};
};

}  // namespace far::server
