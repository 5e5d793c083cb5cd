// How pages that leave come back: as a page, or object by object (Atlas, section 4.1).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>

#include "base/forecast.h"
#include "heap/page_table.h"

namespace far::heap {

// A dense page, of which a large share was accessed, is worth fetching whole. Of others, the objects in use are worth
// more by themselves: they stay, in less room. But if they do not stay, because the program passes by, only fetches
// count, and a few objects cost as much as their page (docs/decisions/0086-pages-used-once.md).
//
// The share that was used predicts the future only if the page's objects belong together. For a page that came back as
// a page, it says how useful that fetch was. Objects that came one by one share their new page by chance, and have all
// been accessed, so it is always dense. Whether fetching such pages whole is worth it is learned, for each tag alone,
// from those that have come back as pages; while most were not worth it, only a few are tried.
class path_selector {
 public:
  // The least share of accessed units of a dense page: at 0 every page takes the page path, above 1 none.
  void set_share(double share) { dense_units_.store(static_cast<unsigned>(std::min(share, 2.0) * units_a_page)); }

  // Whether further use of a page can change what becomes of it.
  [[nodiscard]] bool learns_from(const page_use& used) const {
    const unsigned least = dense_units_.load(std::memory_order_relaxed);
    return used.units < least && least <= units_a_page;
  }
  [[nodiscard]] bool is_dense(const page_use& used) const {
    return used.units >= dense_units_.load(std::memory_order_relaxed);
  }

  // A page is about to leave, of which so much was used. `fetched`: it came as a page. Returns whether it comes back
  // object by object. Any thread.
  [[nodiscard]] bool takes_object_path(const page_use& used, unsigned tag, bool fetched);

  // Another tag gets the number.
  void forget(unsigned tag) { page_fetches_[tag].forget(); }

  static constexpr unsigned tried_one_in = 16;
  // So many objects of a page that is used once are worth fetching it whole.
  static constexpr unsigned worth_a_fetch = 8;

 private:
  std::atomic<unsigned> dense_units_{units_a_page * 8 / 10};
  std::array<forecast, most_tags> page_fetches_;  // a case: a page came as a page, and that was worth it
  std::atomic<unsigned> tries_{0};
};

}  // namespace far::heap
