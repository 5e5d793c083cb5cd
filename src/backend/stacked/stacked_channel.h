// A queue of transfers to a stack of two tiers: a request becomes one transfer for each run of its slots that lie side
// by side in one tier.
//
// Requests and parts come from fixed tables, so nothing is allocated on the way of a transfer. A part that its tier's
// queue has no room for is left: for submit(), submit_left() and wait(), or for poll() where anybody may submit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/stacked/place_table.h"
#include "platform/local_memory.h"

namespace far::backend {

class stacked_backend;

class stacked_channel final : public channel {
 public:
  // Requires: the backend and its places outlive the channel; both queues have room for `depth` requests.
  stacked_channel(stacked_backend& owner, place_table& places, std::unique_ptr<channel> first,
                  std::unique_ptr<channel> next, std::size_t depth);
  ~stacked_channel() override;

  [[nodiscard]] std::size_t submit(std::span<const request> batch) override;
  [[nodiscard]] std::size_t poll(std::span<completion> done) override;
  void wait(std::uint64_t timeout_ns) override;
  [[nodiscard]] bool has_left() const override;
  [[nodiscard]] bool waits_for_time() const override;
  void submit_left() override;
  [[nodiscard]] std::size_t in_flight() const override { return in_flight_; }
  [[nodiscard]] bool needs_its_submitter() const override;
  [[nodiscard]] int event_descriptor() const override;
  void close_in_child() override;

 private:
  template <typename T>
  using local_vector = std::vector<T, platform::local_allocator<T>>;

  struct whole {
    request left;  // the part that has not begun
    bool begun = false;
    std::uint32_t parts = 0;  // under way
    int error_code = 0;
    bool is_split = false;    // it had several parts
    std::uint8_t source = 0;  // of a read: as of its completion
    std::uint8_t refused_by = 0;
  };
  // Slots that are pinned until the transfer ends.
  struct part {
    std::uint32_t whole = 0;
    slot_id first = 0;
    std::uint32_t count = 0;
  };

  void begin_parts(std::uint32_t index);
  [[nodiscard]] bool begin_part(std::uint32_t index);
  [[nodiscard]] std::uint32_t pin_run(const request& left, tier_place* where);
  void unpin(slot_id slot);
  void end_if_over(std::uint32_t index);
  [[nodiscard]] bool has_room(unsigned tier) const;
  void flush();
  void begin_left();
  void end_part(unsigned tier, const completion& ended);

  stacked_backend& owner_;
  place_table& places_;
  const std::array<std::unique_ptr<channel>, 2> queues_;
  const std::size_t depth_;
  local_vector<whole> wholes_;
  local_vector<std::uint32_t> free_wholes_;
  local_vector<std::uint32_t> unfinished_;  // with parts that have not begun
  local_vector<part> parts_;
  local_vector<std::uint32_t> free_parts_;
  std::array<local_vector<request>, 2> unsent_;
  local_vector<completion> ended_;
  std::size_t in_flight_ = 0;
  mutable int events_ = -1;
};

}  // namespace far::backend
