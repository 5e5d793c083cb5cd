// Who has failed to prove a token lately, by the address that it came from.
//
// An address may fail `burst` times at once, and in the long run once in `period_ns`; beyond that it must wait before
// it may try again, whatever it would show. Others are not affected: each attempt costs them one look-up.
//
// An entry is one number: the time at which all failures of the address will be forgotten, a period later for each.
// So memory is bounded in time, and by most_addresses: beyond it the address that would be forgotten first is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/thread_mutex.h"

namespace far::server {

// Thread-safe. Time is passed in, as monotonic nanoseconds.
class failed_logins {
 public:
  static constexpr std::uint64_t burst = 16;
  static constexpr std::uint64_t period_ns = 1'000'000'000;
  static constexpr std::size_t most_addresses = 4096;

  // Whether somebody at this address may try to prove a token now. After a refusal it may a period later at the latest,
  // unless there are more failures meanwhile.
  [[nodiscard]] bool may_try(const std::string& from, std::uint64_t now_ns) const;
  // Somebody there has failed.
  void note(const std::string& from, std::uint64_t now_ns);

  // How many are remembered; for tests.
  [[nodiscard]] std::size_t addresses() const;

 private:
  void make_room(std::uint64_t now_ns) FAR_REQUIRES(lock_);

  mutable thread_mutex lock_;
  std::map<std::string, std::uint64_t> forgotten_at_ns_ FAR_GUARDED_BY(lock_);
};

// What a client is told that may not try, and what to do.
inline constexpr const char* too_many_failures =
    "throttled: too many wrong tokens have come from this address; correct the token or the tenant of the program that "
    "sends them, and try again in a second";

}  // namespace far::server
