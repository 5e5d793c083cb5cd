// Where the pages of a striped far tier are.
//
// A *row* is `data` pages and their `parity` pages, each on another member; any `data` of them give the others
// (parity_code.h). A *group* is 512 rows: one extent of 512 slots on each of its members, so row r is slot r of each
// extent, and the place of a page is one number: (group * 512 + row) * data + column.
//
// Slots are virtual: `place_of` a slot changes with each write, and when the compactor moves its page. Rows are written
// once, as a whole, and then only read until none of their pages is anybody's:
//
//     free ----- take_rows ------------------------------------------> filling
//     filling -- seal: `data` of its pages are stored, at least ------> sealed
//     filling -- seal: fewer are --------------------------------------> dying
//     sealed --- its last page was freed, written anew, or moved ------> dying
//     dying ---- every transfer that began before has ended -----------> free
//
// A page of a sealed row that is nobody's any more (garbage) stays: the others are decoded with it. The compactor moves
// the rest of such rows elsewhere. A column that was not filled counts as zeros and is stored nowhere.
//
// A *holder* is an extent of a group: of one of its places, or the spare, which takes over a place whose member is lost
// or about to stop. A holder misses rows, and only pages that it does not miss are read from it:
//
//     (none) ---- the tender allocates an extent, as spare ----------> spare: misses every row
//     spare ----- misses no sealed row, and no write goes past it ----> place; its predecessor is leaving
//     any ------- a row is sealed without it -------------------------> misses the row
//     any ------- mended: copied, or decoded from others -------------> does not miss the row
//     leaving --- every transfer that began before has ended ---------> (none): the extent is freed
//
// Transfers are counted by phase for each group. A phase turns when nothing of the one before is in flight, so whatever
// began before a moment has ended after two turns. Everything that reads or writes rows is such a transfer, the mender
// and the compactor included: no row that they look at is written anew meanwhile.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>

#include "backend/backend.h"
#include "backend/replicated/member.h"
#include "backend/replicated/refusals.h"
#include "backend/replicated/slot_set.h"
#include "backend/striped/parity_code.h"
#include "base/spin_lock.h"

namespace far::backend {

struct holder {
  bool present = false;
  std::uint8_t member = 0;
  refusal_count refusals{};
  slot_id first = 0;  // of the member's slots
  slot_set missing;   // of rows that are sealed
};

// Places of a group, in order, then the spare.
inline constexpr std::size_t spare_holder = most_places;
inline constexpr std::size_t most_holders = most_places + 1;
using holder_mask = std::uint16_t;

// All zero bytes: a group that is not placed.
struct stripe_group {
  bool placed = false;
  std::uint8_t phase = 0;
  std::uint8_t spare_for = 0;
  std::array<holder, most_holders> holders;
  holder leaving;
  std::uint32_t leaves_at_turn = 0;
  std::uint32_t spare_settles_at_turn = 0;
  std::uint32_t turns = 0;
  std::array<std::uint32_t, 2> in_flight{};
  std::uint32_t live_pages = 0;
  // Its neighbours in the list of groups with about as many free rows: 1 + number.
  std::uint32_t next = 0;
  std::uint32_t before = 0;
  slot_set passed_over;  // by the compactor, in this round of it
  std::uint32_t passed_over_in = 0;
  slot_set free;
  slot_set sealed;
  slot_set dying;  // since the last turn
  slot_set dying_before;

  [[nodiscard]] std::size_t place_of(std::size_t index) const { return index == spare_holder ? spare_for : index; }
  [[nodiscard]] slot_set stale(std::size_t index) const { return holders[index].missing & sealed; }
  // Whether every write that began before there was a spare, and goes past it, has ended.
  [[nodiscard]] bool is_spare_settled() const {
    return !holders[spare_holder].present || static_cast<std::int32_t>(turns - spare_settles_at_turn) >= 0;
  }
  [[nodiscard]] bool is_quiet() const { return in_flight[0] + in_flight[1] == 0; }
  [[nodiscard]] bool is_whole(std::size_t places) const {
    for (std::size_t place = 0; place < places; ++place) {
      if (!holders[place].present || !stale(place).empty()) return false;
    }
    return !holders[spare_holder].present && !leaving.present;
  }
  // Nothing is stored, and nothing is under way.
  [[nodiscard]] bool is_empty() const { return is_quiet() && free.size() == group_slots; }
};

// 0: none. Otherwise 1 + the number of a place.
using page_place = std::uint32_t;
inline constexpr std::uint64_t most_page_places = std::uint64_t{1} << 30;

struct located {
  std::uint64_t group = 0;
  std::uint32_t row = 0;
  std::uint8_t column = 0;
};

// Which members a reader may use.
struct read_limits {
  std::uint64_t shunned = 0;          // a bit for each member that has failed this read, or returned wrong bytes
  std::uint64_t shunned_choices = 0;  // a bit for each choice of others that wrong bytes were computed from
  bool any_state = false;             // in the child of a fork: nobody there learns that a member came back
};

// The next pages of a read, all in the same group and column, in adjacent rows.
struct read_plan {
  // zeros: never written. direct: `sources[0]` has the pages. decoded: they are computed from `sources`. waits, away,
  // gone: not enough of the row's pages can be read, as of a page in a group of copies (replicated/group.h).
  enum class outcome : std::uint8_t { zeros, direct, decoded, waits, away, gone };
  struct source {
    std::uint8_t place = 0;
    std::uint8_t member = 0;
    bool is_zero = false;  // a column that was not filled
    slot_id first = 0;     // of the first row
  };
  outcome how = outcome::gone;
  std::uint8_t phase = 0;
  std::uint64_t group = 0;
  std::uint32_t row = 0;
  std::uint32_t pages = 0;
  std::uint8_t place = 0;
  std::uint8_t choice =
      0;  // of sources, if decoded: of the other places, the one that many before the last is left out
  std::array<source, most_data> sources{};

  [[nodiscard]] bool is_served() const { return how == outcome::direct || how == outcome::decoded; }
};

// Rows that are being written.
struct row_run {
  std::uint64_t group = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;  // 0: there are none
  std::uint8_t phase = 0;
  std::uint8_t spare_for = 0;
  holder_mask targets = 0;
  std::array<std::uint8_t, most_holders> members{};
  std::array<slot_id, most_holders> firsts{};

  [[nodiscard]] std::size_t place_of(std::size_t index) const { return index == spare_holder ? spare_for : index; }
};

// The number of pages in column `column`, if `pages` fill the columns of `rows` rows one after the other.
[[nodiscard]] constexpr std::size_t filled_rows(std::size_t pages, std::size_t rows, std::size_t column) {
  const std::size_t before = column * rows;
  return pages <= before ? 0 : pages - before < rows ? pages - before : rows;
}

// Guarded by `lock`, as a whole.
class stripe_table {
 public:
  stripe_table(parity_shape shape, std::uint64_t most_slots);
  ~stripe_table();
  stripe_table(const stripe_table&) = delete;
  stripe_table& operator=(const stripe_table&) = delete;

  mutable spin_lock lock;

  [[nodiscard]] const parity_shape& shape() const { return shape_; }
  [[nodiscard]] std::uint64_t most_groups() const { return most_groups_; }
  [[nodiscard]] std::uint64_t groups_end() const FAR_REQUIRES(lock) { return groups_end_; }
  [[nodiscard]] stripe_group& group_at(std::uint64_t number) const FAR_REQUIRES(lock) { return groups_[number]; }
  [[nodiscard]] std::uint64_t free_rows() const FAR_REQUIRES(lock) { return free_rows_; }
  [[nodiscard]] std::uint64_t live_pages() const FAR_REQUIRES(lock) { return live_pages_; }
  [[nodiscard]] std::uint64_t placed_groups() const FAR_REQUIRES(lock) { return placed_groups_; }

  // Whether a group has become empty since the last call.
  [[nodiscard]] bool take_emptied() FAR_REQUIRES(lock) { return std::exchange(has_emptied_, false); }
  // For the compactor: sealed rows that it has not passed over in this round.
  [[nodiscard]] slot_set movable_rows(std::uint64_t number) const FAR_REQUIRES(lock);
  [[nodiscard]] std::size_t pages_in(std::uint64_t number, const slot_set& rows) const FAR_REQUIRES(lock);
  void pass_over(std::uint64_t number, const slot_set& rows) FAR_REQUIRES(lock);
  void end_round() FAR_REQUIRES(lock) { ++round_; }
  [[nodiscard]] bool is_being_filled(std::uint64_t number) const FAR_REQUIRES(lock) { return number == filled_group_; }

  [[nodiscard]] page_place place_of(slot_id slot) const FAR_REQUIRES(lock) { return place_of_[slot]; }
  [[nodiscard]] located locate(page_place place) const;
  // The slot whose page this is; no_slot: garbage.
  [[nodiscard]] slot_id owner_of(page_place place) const FAR_REQUIRES(lock);
  [[nodiscard]] page_place number_of(std::uint64_t group, std::size_t row, std::size_t column) const {
    return static_cast<page_place>((group * group_slots + row) * shape_.data + column + 1);
  }
  [[nodiscard]] bool is_filled(std::uint64_t group, std::size_t row, std::size_t place) const FAR_REQUIRES(lock) {
    return place >= shape_.data || (filled_[group * group_slots + row] >> place & 1) != 0;
  }

  // The lowest group that is not placed.
  [[nodiscard]] std::uint64_t next_group() const FAR_REQUIRES(lock) { return next_group_; }
  // Places that group; of these holders, those of places. Requires: there is one.
  std::uint64_t place_group(const std::array<holder, most_places>& holders) FAR_REQUIRES(lock);
  // Requires: is_empty(), and nothing is leaving.
  void remove_group(std::uint64_t number) FAR_REQUIRES(lock);

  // Takes up to `wanted` adjacent free rows of a group where `data` places can be written; not of group `except`. Their
  // transfer has begun: seal() must follow.
  static constexpr std::uint64_t no_group = ~std::uint64_t{0};
  [[nodiscard]] row_run take_rows(std::span<const member* const> members, std::size_t wanted,
                                  std::uint64_t except = no_group) FAR_REQUIRES(lock);
  // The rows have been written where the bit is set, with `pages` pages. A success on a member that has forgotten its
  // slots since is none.
  struct sealed_rows {
    bool is_safe = false;       // `data` pages of each row are stored
    bool leaves_stale = false;  // and some are not
  };
  [[nodiscard]] sealed_rows seal(std::span<const member* const> members, const row_run& run, std::size_t pages,
                                 holder_mask succeeded) FAR_REQUIRES(lock);
  // The page in this place of a sealed row is the slot's; the one that was there is garbage.
  void set_page(slot_id slot, page_place place) FAR_REQUIRES(lock);
  // The slot has no page. Returns whether it had one.
  bool clear_page(slot_id slot) FAR_REQUIRES(lock);
  // After set_page() for all pages of the run: rows that hold nobody's page die. Ends the transfer.
  void end_write(const row_run& run) FAR_REQUIRES(lock);

  // How to read up to `pages` pages from `slot` on. is_served(): a transfer has begun, and end() must follow.
  [[nodiscard]] read_plan plan_read(std::span<const member* const> members, slot_id slot, std::size_t pages,
                                    std::size_t most_decoded, const read_limits& limits) const FAR_REQUIRES(lock);

  // For the mender: up to `most` rows from `row` on with the same sources for the page of plan->place; 0: none.
  [[nodiscard]] std::size_t rows_with_sources(std::span<const member* const> members, std::size_t row, std::size_t most,
                                              read_plan* plan, const read_limits& limits = {}) const FAR_REQUIRES(lock);

  [[nodiscard]] std::uint8_t begin(std::uint64_t group) const FAR_REQUIRES(lock);
  void end(std::uint64_t group, std::uint8_t phase) FAR_REQUIRES(lock);
  // Turns the phase, if anybody waits for that, as often as it can.
  void settle(stripe_group& group) FAR_REQUIRES(lock);
  // The holder's extent is freed when nobody uses it any more. Returns false while another one is leaving.
  bool begin_leaving(stripe_group& group, std::size_t index) FAR_REQUIRES(lock);

  // Recomputes counts, and checks that slots and places agree. Stops the process when something is wrong.
  void validate() const FAR_REQUIRES(lock);

 private:
  // `data` pages of a row from which the page of plan->place is computed, by the first choice that is not shunned and
  // can be read; false: there is none.
  [[nodiscard]] bool find_sources(std::span<const member* const> members, std::size_t row, const read_limits& limits,
                                  read_plan* plan) const FAR_REQUIRES(lock);
  [[nodiscard]] bool find_choice(std::span<const member* const> members, std::size_t row, const read_limits& limits,
                                 read_plan* plan) const FAR_REQUIRES(lock);
  [[nodiscard]] bool is_usable(std::span<const member* const> members, const holder& held, std::size_t row,
                               const read_limits& limits) const;
  [[nodiscard]] read_plan::outcome trouble(std::span<const member* const> members, const located& where,
                                           const read_limits& limits) const FAR_REQUIRES(lock);
  [[nodiscard]] std::size_t writable_places(std::span<const member* const> members, const stripe_group& group) const;
  [[nodiscard]] std::uint64_t emptiest_group(std::span<const member* const> members, std::uint64_t except) const
      FAR_REQUIRES(lock);
  void set_free(stripe_group& group, const slot_set& rows) FAR_REQUIRES(lock);
  void disown(page_place place) FAR_REQUIRES(lock);
  [[nodiscard]] bool holds_pages(std::uint64_t group, std::size_t row) const FAR_REQUIRES(lock);
  [[nodiscard]] bool same_sources(std::span<const member* const> members, const read_plan& plan, std::size_t row,
                                  const read_limits& limits) const FAR_REQUIRES(lock);

  const parity_shape shape_;
  const std::uint64_t most_slots_;
  const std::uint64_t most_groups_;
  stripe_group* const groups_ FAR_POINTEE_GUARDED_BY(lock);
  page_place* const place_of_ FAR_POINTEE_GUARDED_BY(lock);   // by slot
  std::uint32_t* const owners_ FAR_POINTEE_GUARDED_BY(lock);  // by place: 1 + the slot
  std::uint8_t* const filled_ FAR_POINTEE_GUARDED_BY(lock);   // by row: a bit for each column
  std::uint64_t groups_end_ FAR_GUARDED_BY(lock) = 0;
  std::uint64_t next_group_ FAR_GUARDED_BY(lock) = 0;
  // Groups with free rows, in lists by how many: class c has at least 2^(c - 1). 1 + the number of the first one.
  static constexpr std::size_t free_classes = std::bit_width(group_slots) + 1;
  std::array<std::uint32_t, free_classes> with_free_rows_ FAR_GUARDED_BY(lock){};
  std::uint32_t round_ FAR_GUARDED_BY(lock) = 1;
  std::uint64_t free_rows_ FAR_GUARDED_BY(lock) = 0;
  std::uint64_t live_pages_ FAR_GUARDED_BY(lock) = 0;
  std::uint64_t placed_groups_ FAR_GUARDED_BY(lock) = 0;
  bool has_emptied_ FAR_GUARDED_BY(lock) = false;
  std::uint64_t filled_group_ FAR_GUARDED_BY(lock) = no_group;  // that rows are taken from
};

}  // namespace far::backend
