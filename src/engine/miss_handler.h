// The steps of a miss that can be taken at once: fetch the page, fill it with zeros, rescue it on its way out, or make
// it writable. miss.h has the state machine of a whole miss.
#pragma once

#include <cstddef>

#include "engine/core.h"
#include "engine/fetcher.h"
#include "engine/neighbourhood.h"
#include "engine/read_ahead.h"

namespace far::engine {

class miss_handler {
 public:
  // `regions_come_whole`: see neighbourhood.
  miss_handler(core_for_misses& shared, bool regions_come_whole);

  // An access to `page` was reported. Takes the steps that are possible now; `outcome` says what remains for the
  // caller. `streams`: the history of the accessing thread. For hints an Untouched page is left alone, and the outcome
  // is `resolved`. For a place, `lost` also says that the page is out of reach now.
  [[nodiscard]] outcome handle(fetcher& fetcher, read_ahead_state& streams, page_id page, bool write,
                               demand cause = demand::access) FAR_REQUIRES(fetcher.lock);

  // Fills an Untouched page, which the program has allocated. `busy`: it is not Untouched any more.
  [[nodiscard]] outcome fill_with_zeros(page_id page, bool write);

  // The program is going to write to all of the range before it reads there: its Remote pages come as zeros, and may be
  // written, as long as frames are free. Returns how many.
  std::size_t bring_empty(page_range range, unsigned eviction_priority);

  // For hardware guards that report a miss.
  void note_unguarded(page_id page) const { shared_.note_unguarded_miss(page); }

  // Gives up the bytes of a Lost page: it is Untouched from here on, and its next access fills it with zeros.
  void forget_lost(page_id page);

 private:
  [[nodiscard]] outcome fetch(fetcher& fetcher, read_ahead_state& streams, page_id page, bool write, demand cause)
      FAR_REQUIRES(fetcher.lock);
  [[nodiscard]] bool is_out_of_reach(page_id page) const;
  [[nodiscard]] page_range claim_neighbours(page_id page);
  [[nodiscard]] bool claim_untouched(page_id page);
  [[nodiscard]] bool claim_remote(page_id page, unsigned eviction_priority);
  void put_zeros(page_range claimed, bool writable, bool is_walk);
  [[nodiscard]] outcome on_resident(page_id page, bool write);
  [[nodiscard]] outcome first_write(page_id page, page_word word);
  [[nodiscard]] bool note_lost_mapping(page_id page, page_word word);
  [[nodiscard]] window look_ahead(read_ahead_state& streams, page_id page);
  [[nodiscard]] window look_around(page_id page);

  core_for_misses& shared_;
  std::size_t largest_window_;
  neighbourhood neighbours_;
};

}  // namespace far::engine
