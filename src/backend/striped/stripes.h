// The shared state of a striped far tier.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/replicated/layer.h"
#include "backend/striped/parity_code.h"
#include "backend/striped/stripe_table.h"

namespace far::backend {

// As many rows are written, read or moved together: with 4 data pages in a row, 256 KiB.
inline constexpr std::size_t rows_together = 16;

// Stand in completion::source for a page that was computed from others: the first one plus the number of the choice of
// these (stripe_table.h). There are so many members less than sources.
inline constexpr std::uint8_t first_decoded_source = maximum_members + 1 - most_choices;
inline constexpr std::size_t most_striped_members = maximum_members - most_choices;

class row_supply {
 public:
  virtual ~row_supply() = default;
  // Places a group. EAGAIN: later, perhaps; ENOSPC: there is no room on the members.
  [[nodiscard]] virtual int place_group() = 0;
};

struct stripes {
  stripes(std::vector<std::unique_ptr<member>> all, parity_shape shape, std::uint64_t most_slots,
          layer::waiting_times waits, const platform::clock& time, row_supply& supplied)
      : members(std::move(all),
                {.copies = shape.places(), .least = 1, .parity = "parity=" + text_of(shape), .data = shape.data}, 1,
                waits, time),
        table(shape, most_slots),
        code(shape),
        rows(supplied) {}

  // Of the layer of copies, only what it knows of members is used.
  layer members;
  stripe_table table;
  const parity_code code;
  row_supply& rows;

  // Writers wait for rows, which the compactor can make free.
  std::atomic<bool> is_starved{false};

  // Slots of which a part is being written: the page is read, changed, and written anew as a whole. One at a time.
  std::array<slot_id, 64> rewritten FAR_GUARDED_BY(table.lock){};
  std::size_t rewritten_count FAR_GUARDED_BY(table.lock) = 0;

  std::atomic<std::uint64_t> decoded_pages{0};

  // A page cannot be read, and never will be (at most once a second), or perhaps later (once until a member is back).
  void report_unreadable(std::uint64_t group);
  void report_waiting(std::uint64_t group);

 private:
  void name_absent_holders(std::uint64_t group, std::span<char> into);
};

}  // namespace far::backend
