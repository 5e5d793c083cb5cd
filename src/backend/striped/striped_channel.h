// A queue of a striped far tier.
//
// Writes: pages of all requests of a batch fill rows together, column by column, so that neighbours in a request are
// neighbours on a member. Up to 16 rows are a *strip*: their parity is computed, one transfer or a few go to each
// holder, and when all have ended the rows are sealed and the slots get their new places. A page of which only a part
// is written is read first.
//
// Reads: pages that lie one after the other on one member are one transfer. If that member cannot be asked, pages are
// computed from `data` others of their rows, in a *lane*, a buffer for those.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/replicated/member_queues.h"
#include "backend/striped/stripes.h"

namespace far::backend {

// The page of `slot` is moved, unless it is no longer where it was.
struct page_move {
  slot_id slot = no_slot;
  page_place from = 0;
  const std::byte* bytes = nullptr;
  std::uint64_t cookie = 0;
};

class striped_channel final : public channel {
 public:
  // Errors: a member's queue cannot be opened (a member that is down is not an error: it opens its connections later).
  [[nodiscard]] static result<std::unique_ptr<striped_channel>> open(stripes& shared, std::size_t depth);
  ~striped_channel() override;

  [[nodiscard]] std::size_t submit(std::span<const request> batch) override;
  // For the compactor: to rows of any group but `except`. A move that found nowhere to go ends with an error at once.
  [[nodiscard]] std::size_t submit_moves(std::span<const page_move> moves, std::uint64_t except);
  [[nodiscard]] std::size_t poll(std::span<completion> done) override;
  void wait(std::uint64_t timeout_ns) override;
  [[nodiscard]] std::size_t in_flight() const override { return in_flight_; }
  [[nodiscard]] int event_descriptor() const override { return queues_.event_descriptor(); }
  [[nodiscard]] bool waits_for_time() const override;

 private:
  template <typename T>
  using local_vector = std::vector<T, platform::local_allocator<T>>;
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  struct taken_request {
    operation op = operation::read;
    std::uint64_t cookie = 0;
    std::uint64_t next_byte = 0;  // of the virtual slots: what has not begun
    std::uint64_t end_byte = 0;
    std::byte* buffer = nullptr;  // of next_byte
    std::size_t parts = 0;        // under way: reads, or pages to write
    int error_code = 0;
    std::uint64_t avoid = 0;
    const page_reduction* reduce = nullptr;
    page_place moved_from = 0;  // of a move
    std::uint8_t source = 0;    // of a read: as of its completion
    std::uint8_t refused_by = 0;
    bool is_mixed = false;  // not the same for all of its bytes
    bool is_needed = true;
  };

  // A read of adjacent slots.
  struct read_part {
    std::uint32_t request = none;
    std::uint32_t rewrite = none;  // whose old page it reads, instead of a request
    std::uint64_t begin = 0;       // bytes that are left
    std::uint64_t end = 0;
    std::byte* buffer = nullptr;
    read_plan plan{};  // of the transfers under way
    std::uint64_t planned_bytes = 0;
    std::uint32_t lane = none;
    std::size_t outstanding = 0;
    bool has_failed = false;      // one of them
    std::uint64_t failed = 0;     // a bit for each member that has failed, in this attempt or before
    std::uint8_t refused_by = 0;  // the page's own holder, as of the completion
    int error_code = 0;
    std::uint64_t started_ns = 0;
    std::uint64_t parked_at_ns = 0;
    enum class state : std::uint8_t { idle, reading, parked, needs_lane } now = state::idle;
  };

  struct rewrite {
    std::uint32_t request = none;
    slot_id slot = no_slot;
    std::uint32_t offset = 0;
    std::uint32_t length = 0;
    const std::byte* bytes = nullptr;
    bool is_locked = false;
  };

  struct page_to_write {
    std::uint32_t request = none;
    std::uint32_t rewrite = none;
    slot_id slot = no_slot;
    const std::byte* bytes = nullptr;
  };

  struct strip {
    row_run run;
    std::size_t outstanding = 0;
    holder_mask failed = 0;
    std::size_t count = 0;
    std::array<page_to_write, most_data * rows_together> pages;
  };

  striped_channel(stripes& shared, std::size_t depth);

  [[nodiscard]] std::uint32_t take_request(const request& io);
  void begin_work();
  void start_reads();
  void start_read(std::uint32_t request);
  void attempt(std::uint32_t index);
  void refuse(std::uint32_t index);
  void read_zeros(read_part& part, std::uint64_t bytes);
  void send_read(std::uint32_t index);
  void on_read(std::size_t member, const completion& ended);
  void end_attempt(std::uint32_t index);
  void decode(read_part& part);
  void park(std::uint32_t index);
  void end_part(std::uint32_t index, int error_code);
  void retry_parked();

  void gather();
  [[nodiscard]] bool gather_from(std::uint32_t request);
  void start_rewrite(const rewrite& wanted);
  void try_rewrite(std::uint32_t index);
  void end_rewrite(std::uint32_t index);
  [[nodiscard]] bool write_strip();
  [[nodiscard]] row_run find_rows(std::size_t pages);
  void send_strip(std::uint32_t index);
  void push_pages(std::uint32_t index, std::size_t holder, std::size_t column);
  void on_write(std::size_t member, const completion& ended);
  void end_strip(std::uint32_t index);
  void end_page(const page_to_write& page, int error_code);
  void fail_gathered();

  void end_request(std::uint32_t index);
  void end_if_done(std::uint32_t index);
  [[nodiscard]] std::byte* lane_bytes(std::uint32_t lane, std::size_t source) const;
  [[nodiscard]] std::byte* parity_bytes(std::uint32_t index, std::size_t number) const;
  [[nodiscard]] std::byte* rewrite_bytes(std::uint32_t index) const { return rewrite_memory_ + index * page_bytes; }
  [[nodiscard]] const parity_shape& shape() const { return shared_.code.shape(); }

  stripes& shared_;
  member_queues queues_;
  local_vector<taken_request> requests_;
  local_vector<std::uint32_t> free_requests_;
  local_vector<std::uint32_t> unread_;     // requests that have not begun as a whole, in order
  local_vector<std::uint32_t> unwritten_;  // the same
  local_vector<read_part> parts_;
  local_vector<std::uint32_t> free_parts_;
  local_vector<std::uint32_t> free_lanes_;
  local_vector<rewrite> rewrites_;
  local_vector<std::uint32_t> free_rewrites_;
  local_vector<strip> strips_;
  local_vector<std::uint32_t> free_strips_;
  local_vector<page_to_write> gathered_;
  local_vector<completion> ended_;  // to be polled
  const std::size_t lane_memory_bytes_;
  const std::size_t parity_memory_bytes_;
  std::byte* const lane_memory_;
  std::byte* const parity_memory_;
  std::byte* const rewrite_memory_;
  std::size_t in_flight_ = 0;
  std::size_t waiting_ = 0;  // parts that are parked or need a lane, and rewrites that wait for another's
  std::uint64_t next_retry_ns_ = 0;
  std::uint64_t starved_since_ns_ = 0;  // there are no rows for what is to be written; 0: there were, or nothing is
  std::uint64_t except_ = stripe_table::no_group;
  bool is_compactor_ = false;
};

}  // namespace far::backend
