// Forgetting the bytes of pages, wherever they are.
#pragma once

#include <array>
#include <cstddef>

#include "engine/core.h"

namespace far::engine {

// Forgets the bytes of a page of a guarded block. begin_discard does so, or claims the page for finish_discard and sets
// `unmap`; it returns false while another thread is working on the page. finish_discard takes one claimed page; it
// stays Resident if it is locked in memory.
[[nodiscard]] bool begin_discard(core_for_ranges& shared, page_id page, bool* unmap);
void finish_discard(core_for_ranges& shared, page_id page);

// Claimed pages that are finished together: each call that unmaps pages interrupts the other processors.
class claimed_pages {
 public:
  explicit claimed_pages(core_for_ranges& shared) : shared_(shared) {}

  // Requires: pages are added in the order of addresses, and finished before the caller waits for anything.
  void add(page_id page);
  void finish();

 private:
  static constexpr std::size_t most_runs = 64;

  core_for_ranges& shared_;
  std::array<page_range, most_runs> runs_;
  std::size_t count_ = 0;
};

// Drops the frame of one page that the caller has claimed. Returns false when it is locked in memory and keeps its
// bytes.
[[nodiscard]] bool drop_page(core_for_ranges& shared, page_id page);

}  // namespace far::engine
