// A server's statistics: text for Prometheus, and a page for people.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_mutex.h"
#include "server/counters.h"
#include "server/devices/host.h"
#include "server/store.h"

namespace far::server {

// The sums over all loops.
struct totals {
  std::array<std::uint64_t, request_kinds> requests{};
  std::uint64_t failed_requests = 0;
  std::uint64_t damaged_requests = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_called = 0;
  std::uint64_t connections = 0;
  std::uint64_t sessions_opened = 0;
  std::uint64_t sessions_joined = 0;
  std::array<std::uint64_t, close_reasons> endings{};
  std::array<std::uint64_t, latency_histogram::buckets> latency{};
  std::uint64_t latency_sum_ns = 0;

  [[nodiscard]] std::uint64_t all_requests() const;
  [[nodiscard]] std::uint64_t connections_open() const;
};

[[nodiscard]] totals sum(const std::vector<const loop_counters*>& loops);

struct server_view {
  const store* lent = nullptr;
  std::vector<const loop_counters*> loops;
  std::string address;  // for people
  std::uint64_t started_at_ns = 0;
  std::shared_ptr<const device_host> devices = nullptr;  // nullptr: there are no plugins
};

// The text format of Prometheus, version 0.0.4.
[[nodiscard]] std::string prometheus_text(const server_view& view, std::uint64_t now_ns);

// Requests and bytes a second, between two looks.
struct rates {
  double requests = 0;
  double bytes_read = 0;
  double bytes_written = 0;
};

// Remembers earlier totals. Thread-safe.
class rate_meter {
 public:
  // The rates since a look about a second ago, or since the last look if that is longer ago.
  [[nodiscard]] rates look(const totals& now, std::uint64_t now_ns);

 private:
  static constexpr std::uint64_t least_ns = 900'000'000;

  thread_mutex lock_;
  std::uint64_t seen_at_ns_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t requests_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t bytes_read_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t bytes_written_ FAR_GUARDED_BY(lock_) = 0;
  rates last_ FAR_GUARDED_BY(lock_);
};

class history;  // plots.h

// One page, without scripts, that reloads itself every two seconds.
[[nodiscard]] std::string status_page(const server_view& view, const rates& speed, const history& past,
                                      std::uint64_t now_ns);

}  // namespace far::server
