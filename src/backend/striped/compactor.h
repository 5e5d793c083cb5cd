// Bounds the memory that garbage takes: moves pages out of sparse groups, so that those become empty (as Carbink
// compacts its spans: Zhou et al., "Carbink: fault-tolerant far memory", OSDI 2022, section 3.4).
//
// It reads pages as anybody would, a strip at a time, and writes them to other rows. A page that was freed or written
// anew meanwhile stays as it is. There are two reasons:
//
// - The groups have room for more than `most_garbage` beyond the pages that are somebody's. Then the group with the
//   fewest pages is emptied into others, and its extents are given back.
// - Writers wait for rows, and there is no room for more groups. Then pages of rows with garbage, of the group with the
//   most of it, are put together to fewer rows, wherever those are.
//
// While children of a fork read slots where they were at the fork, nothing is moved.
#pragma once

#include <array>
#include <atomic>
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
  void begin();
  void find_pages() FAR_REQUIRES(shared_.table.lock);
  void find_pages_beside_garbage() FAR_REQUIRES(shared_.table.lock);
  void add_pages(std::size_t column, std::size_t first, std::size_t rows) FAR_REQUIRES(shared_.table.lock);
  [[nodiscard]] bool is_sparse() const FAR_REQUIRES(shared_.table.lock);
  void read();
  void write();
  void close(bool is_done);
  [[nodiscard]] std::byte* page(std::size_t index) const { return memory_ + index * page_bytes; }

  stripes& shared_;
  std::unique_ptr<striped_channel> queue_;
  std::byte* const memory_;
  std::atomic<phase> now_{phase::none};
  std::uint64_t group_ = 0;
  std::uint8_t transfer_ = 0;  // its phase
  std::array<page_move, most_pages> pages_;
  std::size_t count_ = 0;
  std::size_t submitted_ = 0;
  std::size_t ended_ = 0;
  bool has_failed_ = false;
  bool is_for_writers_ = false;
  std::uint64_t rest_until_ns_ = 0;
  std::atomic<std::uint64_t> moved_pages_{0};
};

}  // namespace far::backend
