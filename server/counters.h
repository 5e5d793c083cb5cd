// The counters of a loop. Each loop writes its own, and reports add them up.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "server/close_reason.h"
#include "wire/message.h"

namespace far::server {

// One writer, any number of readers.
class counter {
 public:
  void add(std::uint64_t n = 1) { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// A histogram of request times: bucket b counts those of at most 2^b ns.
class latency_histogram {
 public:
  static constexpr std::size_t first_bucket = 10;  // up to 1 us
  static constexpr std::size_t buckets = 24;       // the last one: 8.6 s and more

  void add(std::uint64_t latency_ns, std::uint64_t count) {
    const std::size_t power = latency_ns <= 1 ? 0 : static_cast<std::size_t>(std::bit_width(latency_ns - 1));
    const std::size_t bucket = power <= first_bucket ? 0 : power - first_bucket;
    counts_[bucket < buckets ? bucket : buckets - 1].add(count);
    sum_ns_.add(latency_ns * count);
  }
  [[nodiscard]] std::uint64_t count_of(std::size_t bucket) const { return counts_[bucket].value(); }
  [[nodiscard]] std::uint64_t sum_ns() const { return sum_ns_.value(); }
  [[nodiscard]] static constexpr std::uint64_t limit_ns(std::size_t bucket) {
    return std::uint64_t{1} << (bucket + first_bucket);
  }

 private:
  std::array<counter, buckets> counts_;
  counter sum_ns_;
};

inline constexpr auto first_request = static_cast<std::size_t>(wire::opcode::read);
inline constexpr std::size_t request_kinds = static_cast<std::size_t>(wire::opcode::close) - first_request + 1;

struct alignas(64) loop_counters {
  std::array<counter, request_kinds> requests;  // by opcode, from read on
  counter failed_requests;                      // answered with another status than ok
  counter damaged_requests;                     // of these: with bad_checksum
  counter bytes_read;                           // payload, out of slots
  counter bytes_written;                        // payload, into slots
  counter bytes_called;                         // payload of calls and of their replies
  counter connections;                          // accepted
  counter sessions_opened;
  counter sessions_joined;
  std::array<counter, close_reasons> endings;  // of connections, by reason
  latency_histogram latency;                   // from the arrival of a batch to the end of sending its replies
};

}  // namespace far::server
