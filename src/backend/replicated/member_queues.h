// The queues of a channel to all members of a far tier.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/replicated/layer.h"

namespace far::backend {

// Joins a layer when its owner does so for it.
class member_queues final : public queue_holder {
 public:
  // Each of `depth` transfers.
  explicit member_queues(std::size_t depth) : depth_(depth) {}
  ~member_queues() override;
  member_queues(const member_queues&) = delete;
  member_queues& operator=(const member_queues&) = delete;

  // When a queue is added later, the channel's owner may be in any of the calls below.
  [[nodiscard]] result<std::unique_ptr<channel>> open_queue(backend& store) override;
  void take_queue(std::unique_ptr<channel> queue) override;
  void has_joined() override;

  // In the child of a fork: the queues are the parent's, and nothing of theirs may be touched.
  void abandon();

  void push(std::size_t member, const request& transfer) { queues_[member].unsent.push_back(transfer); }
  [[nodiscard]] std::size_t count() const { return count_.load(std::memory_order_acquire); }
  // Of what was submitted and has not been taken.
  [[nodiscard]] std::size_t in_flight();
  // Submits what was pushed, as much as fits.
  void flush();
  // Takes up to `most` completions of one member; returns how many there were.
  struct taken {
    std::size_t member = 0;
    std::size_t count = 0;
    std::array<completion, 32> completions;
  };
  [[nodiscard]] taken take(std::size_t most);

  // Readable when a member's queue is, or after announce(true); -1 when a member's queue has none.
  [[nodiscard]] int event_descriptor() const { return events_; }
  // Whether a transfer could not be sent, or waits for time in a member's queue.
  [[nodiscard]] bool waits_for_time() const;
  // Whether completions are ready that no member's queue has.
  void announce(bool is_ready);
  // Sleeps until a queue has a completion, or `timeout_ns` has passed.
  void wait(std::uint64_t timeout_ns);

 private:
  struct queue {
    std::unique_ptr<channel> transfers;
    std::vector<request, platform::local_allocator<request>> unsent;
  };
  [[nodiscard]] std::span<queue> all() { return {queues_.data(), count()}; }

  const std::size_t depth_;
  std::array<queue, maximum_members> queues_;
  std::atomic<std::size_t> count_{0};
  std::size_t next_ = 0;
  int events_ = -1;
  int ready_event_ = -1;
  bool is_announced_ = false;
};

}  // namespace far::backend
