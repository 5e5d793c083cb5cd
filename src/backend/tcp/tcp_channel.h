// The queue of `tcp:`: its transfers travel over connections that it shares with other channels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/tcp/block_table.h"
#include "backend/tcp/transfer.h"
#include "backend/tcp/transfer_connection.h"
#include "base/result.h"
#include "base/spin_lock.h"
#include "platform/clock.h"
#include "platform/local_memory.h"

namespace far::backend {

// The connections that a channel uses: one lane for each direction; they may be the same.
struct tcp_lanes {
  transfer_connection* reads = nullptr;
  transfer_connection* writes = nullptr;
};

// Any channel of a connection may poll it. Completions for another channel go into that channel's queue, and wake its
// owner if it sleeps.
//
// Error codes of completions: ETIMEDOUT: no answer in time; ESTALE: the server has lost the slot, for good; EIO: the
// server does not know the slot.
class tcp_channel final : public channel, public completion_sink {
 public:
  static constexpr std::size_t largest_depth = 1 << 16;

  // Requires: the arguments outlive the channel. Errors: depth out of range, no descriptor left. Over connections
  // without descriptors it has none either.
  [[nodiscard]] static result<std::unique_ptr<channel>> open(const tcp_lanes& lanes, const block_table& blocks,
                                                             const session_epoch& session, const platform::clock& time,
                                                             std::uint64_t timeout_ns, std::size_t depth);
  ~tcp_channel() override;

  [[nodiscard]] std::size_t submit(std::span<const request> batch) override;
  [[nodiscard]] std::size_t poll(std::span<completion> done) override;
  void wait(std::uint64_t timeout_ns) override;
  [[nodiscard]] std::size_t in_flight() const override { return depth_ - unused_.size(); }
  [[nodiscard]] int event_descriptor() const override;

  void complete(transfer& ended, const completion_sink* sink) override;

 private:
  struct lane {
    transfer_connection* over = nullptr;
    std::size_t in_flight = 0;
    int watched = -1;  // the descriptor of `over` that is in ours
  };

  tcp_channel(const tcp_lanes& lanes, const block_table& blocks, const session_epoch& session,
              const platform::clock& time, std::uint64_t timeout_ns, std::size_t depth, int watch, int event);

  [[nodiscard]] std::uint64_t deadline_of(const request& io, std::uint64_t now_ns) const;
  [[nodiscard]] bool asks_about_other_epochs(const request& io, std::uint32_t epoch) const;
  void prepare(const request& io, std::uint64_t now_ns);
  void watch_lane(lane& used);
  [[nodiscard]] bool spin(std::uint64_t until_ns);
  // Whether poll() would return something; the descriptor says so, too, then.
  [[nodiscard]] bool has_done() const FAR_REQUIRES(queue_lock_);
  void sleep(std::uint64_t ns) const;
  [[nodiscard]] std::size_t pop(std::span<completion> done);
  void wake_owner() const;
  void signal(bool wanted) const FAR_REQUIRES(queue_lock_);

  const block_table& blocks_;
  const session_epoch& session_;
  const platform::clock& time_;
  const std::uint64_t timeout_ns_;
  const std::size_t depth_;
  const int watch_;              // an epoll descriptor: the lanes in use, and `event_`; -1: there is nothing to watch
  const std::uint64_t spin_ns_;  // how long wait() looks for answers before it sleeps
  const int event_;
  std::array<lane, 2> lanes_;
  std::size_t lane_count_;
  std::array<transfer*, 2> prepared_first_{};  // of the batch that is being submitted, by lane
  std::array<transfer*, 2> prepared_last_{};
  transfer* const transfers_;
  std::vector<std::uint32_t, platform::local_allocator<std::uint32_t>> unused_;

  mutable spin_lock queue_lock_;
  transfer* done_first_ FAR_GUARDED_BY(queue_lock_) = nullptr;
  transfer* done_last_ FAR_GUARDED_BY(queue_lock_) = nullptr;
  mutable bool watched_ = false;  // somebody looks at our descriptor; written by the channel's owner, with the lock
  mutable bool signalled_ FAR_GUARDED_BY(queue_lock_) = false;
};

}  // namespace far::backend
