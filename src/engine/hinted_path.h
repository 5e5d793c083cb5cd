// The hinted path (Eden, section 3.2): a hint fetches pages on the calling thread or fiber, without a fault.
#pragma once

#include "engine/fetcher_pool.h"
#include "engine/hint.h"
#include "engine/miss.h"

namespace far::engine {

// The steps that the path leaves to the pager.
class page_bringer {
 public:
  // Fills an Untouched page, if the program has allocated it and it is not busy. Returns whether it is filled now.
  [[nodiscard]] virtual bool fill(page_id page, bool write) noexcept = 0;
  // Waits for the page, in the calling thread's or fiber's way.
  virtual void bring(wanted_page wanted) noexcept = 0;

 protected:
  ~page_bringer() = default;
};

class hinted_path {
 public:
  // The request of a hint.
  struct plan {
    page_id first = 0;  // missing
    page_id end = 0;    // of what is waited for; not above `first`: nothing
    page_range ahead;   // to prefetch; empty: nothing
    bool has_filled = false;

    [[nodiscard]] bool empty() const { return end <= first && ahead.count == 0; }
  };

  hinted_path(engine& with, host& around, const fetcher_pool& fetchers, page_bringer& pages)
      : engine_(with), host_(around), fetchers_(fetchers), pages_(pages) {}

  // Finds the missing pages. Usually all pages are resident; then the hint ends here, without a system call.
  [[nodiscard]] plan look(page_id first, page_id last, const hint& about) noexcept;
  // Fetches the missing pages. Returns whether any was missing; for a prefetch: whether any transfer was started.
  bool follow(const plan& chosen, const hint& about) noexcept;

  // Starts to fetch the Remote pages of the range, while frames are free ahead of need. `about`: the options of a hint,
  // or null. Returns whether transfers are on their way now, for which the caller polls or waits.
  [[nodiscard]] bool prefetch(page_range range, const hint* about) noexcept;
  // The program is going to overwrite the range: its Remote pages come without their bytes, while frames are free.
  // Returns whether any did.
  bool bring_empty(page_range range, unsigned eviction_priority) noexcept;
  // The range from its first Remote page on.
  [[nodiscard]] page_range from_first_remote(page_range range) const noexcept;

 private:
  void make_room() noexcept;
  [[nodiscard]] prospect expect(page_id page, const hint& about, bool& has_filled) noexcept;
  [[nodiscard]] page_range next_half(page_id page, std::int64_t ahead) const noexcept;
  [[nodiscard]] prospect expect_again(page_id page, const hint& about) noexcept;

  engine& engine_;
  host& host_;
  const fetcher_pool& fetchers_;
  page_bringer& pages_;
};

}  // namespace far::engine
