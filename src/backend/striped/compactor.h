// Bounds the memory that garbage takes: moves pages out of sparse groups, so that those become empty (as Carbink
// compacts its spans: Zhou et al., "Carbink: fault-tolerant far memory", OSDI 2022, section 3.4).
//
// It reads pages as anybody would, a strip at a time, and writes them to other rows. A page that was freed or written
// anew meanwhile stays as it is. Rows with a page that cannot be read are passed over until everything else has been
// moved, which is a round. There are two reasons:
//
// - The groups have room for more than `most_garbage` beyond the pages that are somebody's. Then the group with the
//   fewest pages is emptied into others, and its extents are given back. No group is, in which there is little garbage.
// - Writers wait for rows, and there is no room for more groups. Then pages of rows with garbage, of the group with the
//   most of it, are put together to fewer rows, wherever those are.
//
// It looks for a group in steps, and stays with that one. The table's lock is held for a part of them only.
//
// While children of a fork read slots where they were at the fork, nothing is moved.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>

#include "backend/striped/striped_channel.h"
#include "backend/striped/stripes.h"

namespace far::backend {

// Garbage, and room that groups keep for it, as a share of the pages.
inline constexpr double most_garbage = 0.25;
// Groups that there may be beyond that.
inline constexpr std::uint64_t groups_to_spare = 2;

class compactor {
 public:
  explicit compactor(stripes& shared);
  ~compactor();
  compactor(const compactor&) = delete;
  compactor& operator=(const compactor&) = delete;

  [[nodiscard]] result<void> open();

  // Returns after how many nanoseconds it wants the next step.
  std::uint64_t step();
  [[nodiscard]] bool is_idle() const { return now_ == phase::none; }
  [[nodiscard]] std::uint64_t moved_pages() const { return moved_pages_.load(); }

 private:
  static constexpr std::size_t most_pages = most_data * rows_together;
  enum class phase : std::uint8_t { none, reading, writing };

  [[nodiscard]] bool is_wanted() const;
  [[nodiscard]] bool choose_pages();
  [[nodiscard]] bool find_pages_of_group() FAR_REQUIRES(shared_.table.lock);
  void look_for_group() FAR_REQUIRES(shared_.table.lock);
  [[nodiscard]] std::size_t gain_of(std::uint64_t number) const FAR_REQUIRES(shared_.table.lock);
  void find_pages() FAR_REQUIRES(shared_.table.lock);
  void find_pages_beside_garbage() FAR_REQUIRES(shared_.table.lock);
  void add_pages(std::size_t column, std::size_t first, std::size_t rows) FAR_REQUIRES(shared_.table.lock);
  [[nodiscard]] bool is_sparse() const FAR_REQUIRES(shared_.table.lock);
  void pass_over(const slot_set& rows) FAR_REQUIRES(shared_.table.lock);
  void read();
  void submit_reads();
  void on_transfer(const completion& ended);
  void end_reads();
  void write();
  void close(bool is_done);
  [[nodiscard]] std::byte* page(std::size_t index) const { return memory_ + index * page_bytes; }

  stripes& shared_;
  std::unique_ptr<striped_channel> queue_;
  std::byte* const memory_;
  std::atomic<phase> now_{phase::none};
  std::uint64_t group_ = stripe_table::no_group;  // that pages are moved out of
  std::uint8_t transfer_ = 0;                     // its phase
  std::uint64_t cursor_ = 0;                      // of the search for a group
  std::uint64_t best_ = stripe_table::no_group;
  std::size_t best_gain_ = 0;
  std::array<page_move, most_pages> pages_;
  std::size_t count_ = 0;
  std::size_t submitted_ = 0;
  std::size_t ended_ = 0;
  std::bitset<most_pages> unread_;  // pages that are yet to be read, or cannot be
  bool is_one_by_one_ = false;      // the pages of reads that have failed are read alone
  bool has_failed_ = false;
  bool is_for_writers_ = false;
  std::uint64_t rest_until_ns_ = 0;
  std::uint64_t round_ends_ns_ = 0;  // if rows were passed over; 0: none
  std::atomic<std::uint64_t> moved_pages_{0};
};

}  // namespace far::backend
