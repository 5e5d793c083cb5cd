// A queue of transfers to the tiers that a process has inherited, and to its own.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "platform/local_memory.h"

namespace far::backend {

class lineage_backend;

// The own tier may be opened later than the channel, and then gives each channel a queue. From then on the channel's
// owner uses it.
class lineage_channel final : public channel {
 public:
  // The slots of a tier, as the engine numbers them, and a queue there.
  struct part {
    slot_id base = 0;
    slot_id end = 0;
    std::unique_ptr<channel> queue;
  };
  using part_list = std::vector<part, platform::local_allocator<part>>;

  lineage_channel(lineage_backend& holder, part_list inherited, std::size_t depth)
      : holder_(holder), inherited_(std::move(inherited)), depth_(depth) {}
  ~lineage_channel() override;

  [[nodiscard]] std::size_t submit(std::span<const request> batch) override;
  [[nodiscard]] std::size_t poll(std::span<completion> done) override;
  void wait(std::uint64_t timeout_ns) override;
  [[nodiscard]] std::size_t in_flight() const override;
  [[nodiscard]] int event_descriptor() const override;
  [[nodiscard]] bool needs_its_submitter() const override;
  [[nodiscard]] bool has_left() const override;
  [[nodiscard]] bool waits_for_time() const override;
  void submit_left() override;
  void close_in_child() override;

  [[nodiscard]] std::size_t depth() const { return depth_; }
  // Requires: the channel has none yet; the tier's slots begin at `base`.
  void give_own(slot_id base, std::unique_ptr<channel> queue);

 private:
  // Calls visit(queue) for each.
  template <typename Visit>
  void for_each_queue(Visit visit) const;
  [[nodiscard]] channel& queue_of(slot_id slot, slot_id* base, slot_id* end) const;

  lineage_backend& holder_;
  const part_list inherited_;
  const std::size_t depth_;
  slot_id own_base_ = 0;
  std::atomic<channel*> own_{nullptr};  // owned
  // Readable when one of the queues is; made on first use.
  mutable int events_ = -1;
  mutable bool own_is_watched_ = false;
};

}  // namespace far::backend
