// A queue of a replicated far tier: one queue to each member, and the state of each request in them.
//
// A request is cut at the borders of groups into parts. A part of a read is one transfer, from the copy that will
// answer first, and is repeated on another copy when it fails; a part of a write is one transfer to each copy.
// Requests, parts and transfers come from fixed tables, so nothing is allocated on the way of a transfer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/replicated/layer.h"
#include "backend/replicated/member_queues.h"

namespace far::backend {

class replicated_channel final : public channel {
 public:
  // A queue for `depth` requests. Errors: a member's queue cannot be opened (a member that is down is not an error: it
  // opens its connections later).
  [[nodiscard]] static result<std::unique_ptr<channel>> open(layer& shared, std::size_t depth);
  ~replicated_channel() override;

  [[nodiscard]] std::size_t submit(std::span<const request> batch) override;
  [[nodiscard]] std::size_t poll(std::span<completion> done) override;
  void wait(std::uint64_t timeout_ns) override;
  [[nodiscard]] std::size_t in_flight() const override { return in_flight_; }

  // Readable when a member's queue is, or a request has ended without one; -1 when a member's queue has none.
  [[nodiscard]] int event_descriptor() const override { return queues_.event_descriptor(); }
  [[nodiscard]] bool waits_for_time() const override { return parked_ > 0 || queues_.waits_for_time(); }

 private:
  template <typename T>
  using local_vector = std::vector<T, platform::local_allocator<T>>;

  struct taken_request {
    operation op = operation::read;
    std::uint64_t cookie = 0;
    std::uint64_t next_byte = 0;  // of the virtual slots: where the next part begins
    std::uint64_t end_byte = 0;
    std::byte* buffer = nullptr;  // of next_byte
    std::size_t parts = 0;        // under way
    int error_code = 0;
    std::uint64_t avoid = 0;
    const page_reduction* reduce = nullptr;
    std::uint8_t source = 0;  // of a read: as of its completion
    std::uint8_t refused_by = 0;
    bool is_mixed = false;  // not the same for all of its bytes
    bool is_needed = true;
  };

  struct part {
    std::uint32_t request = 0;
    operation op = operation::read;
    std::uint64_t group = 0;
    byte_range bytes;  // of the group; of a read: the rest
    std::byte* buffer = nullptr;
    int error_code = 0;
    // Of a read: the transfer under way.
    started_read read;
    place_mask tried = 0;
    std::uint8_t refused_by = 0;  // as of the completion
    bool parked = false;
    std::uint64_t parked_at_ns = 0;
    std::uint64_t started_ns = 0;
    // Of a write.
    started_write write;
    place_mask outstanding = 0;
    place_mask succeeded = 0;
  };

  // What a part needs of the slots of a question about rows, but for the first one. All of them are on one member.
  struct rows_read {
    page_reduction asked;  // of the member's slots
    std::array<slot_id, detail::most_row_pages> slots;
    std::array<std::uint64_t, detail::most_row_pages> groups;  // where a read has begun
    std::array<std::uint8_t, detail::most_row_pages> phases;
    std::size_t count = 0;  // of these
  };

  replicated_channel(layer& shared, std::size_t depth);

  void start_parts(std::uint32_t request);
  void start_unfinished();
  void start(std::uint32_t index);
  void start_read(std::uint32_t index);
  void start_write(std::uint32_t index);
  void push(std::size_t member, std::uint32_t index, std::uint8_t place, slot_id first, byte_range bytes);
  void on_transfer(std::size_t member, completion ended);
  [[nodiscard]] bool is_about_rows(const part& reading) const;
  [[nodiscard]] bool begin_rows(std::uint32_t index);
  void end_rows(std::uint32_t index);
  void end_read(std::uint32_t index, int error_code);
  void fail_read(std::uint32_t index, int error_code);
  void note_source(const part& reading);
  void end_part(std::uint32_t index);
  void end_request(std::uint32_t index);
  void retry_parked();
  [[nodiscard]] read_choice choice_for(const part& reading);
  [[nodiscard]] bool has_room() const { return !free_parts_.empty(); }

  layer& shared_;
  local_vector<taken_request> requests_;
  local_vector<std::uint32_t> free_requests_;
  local_vector<std::uint32_t> unfinished_;  // requests with parts that have not begun, in order
  local_vector<part> parts_;
  local_vector<std::uint32_t> free_parts_;
  rows_read* const rows_;           // for each part; memory that is not touched before it is used
  local_vector<completion> ended_;  // to be polled
  member_queues queues_;
  std::array<std::size_t, maximum_members> reads_under_way_{};  // by member
  std::array<std::uint64_t, maximum_members> costs_;
  std::size_t in_flight_ = 0;
  std::size_t parked_ = 0;
  std::uint64_t next_retry_ns_ = 0;
  std::uint64_t reads_ = 0;
};

}  // namespace far::backend
